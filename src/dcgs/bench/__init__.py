"""Benchmarks: exact counts, and ratios of times that were measured in one run."""
