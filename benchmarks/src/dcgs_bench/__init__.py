"""The evidence for dcgs: benchmarks, the paper's experiments, and the pages about them."""
