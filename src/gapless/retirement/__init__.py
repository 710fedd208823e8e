"""Retirement: what follows when an operator declares that a broker is gone (R26).

- :mod:`.consequences`: what a retirement means for logs, names, locations and cursors
- :mod:`.retire_calls`: the request of the operator
"""
