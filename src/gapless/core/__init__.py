"""What all components share: errors, limits, parameters, ids, ticks, and the broker's effects.

Nothing here depends on filters, protocols or IO. All other packages import this one; it imports
none of them.
"""
