"""Retirement: the effects of an operator's declaration that a broker will not return (R26).

- :mod:`.consequences`: the consequences for logs, names, locations and cursors
- :mod:`.retire_calls`: the request of the operator
"""
