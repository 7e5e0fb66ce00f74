"""A package outside of dcgs with a set, a method, an inner solver and a loss of its own."""
