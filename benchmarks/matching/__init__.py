"""The matching index compared with others: ``python -m benchmarks.matching``."""
