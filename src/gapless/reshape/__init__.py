"""Reshape: the step by which this broker takes another tree (R13)."""
