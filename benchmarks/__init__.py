"""Benchmarks of speed and quality, each with its report in `results`."""
