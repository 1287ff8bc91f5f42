"""Published results, one file each; `benchmarks/reproduce.py` runs them."""
