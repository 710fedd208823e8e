"""Reshape: the durable step of this broker from one tree to the next (R13)."""
