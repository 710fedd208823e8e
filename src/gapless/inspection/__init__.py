"""Inspection: the state of a broker as operators see it. No other component uses it."""
