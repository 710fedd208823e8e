"""What every room shares: errors, limits, and (as they are built) ids, ticks, effects.

Nothing here knows of filters, brokers or IO. Other rooms import from here; this room
imports nothing of ours.
"""
