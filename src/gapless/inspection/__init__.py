"""Inspection: what operators see of a broker. No other component reads it."""
