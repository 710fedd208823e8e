"""The matching index against its rivals: ``python -m benchmarks.matching``."""
