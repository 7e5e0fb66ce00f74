"""FastDCGS: its forms over edges, by sums and in factors, and the choice between them."""
