"""Benchmarks: one script per question, see README.md."""
