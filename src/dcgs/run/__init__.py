"""``minimize`` and what it returns: check the arguments, build the run, run it, collect the result."""
