"""Packed events: publications in their encoded form, stored and forwarded without decoding.

- :mod:`.encode`: the encoding of publications, computed once
- :mod:`.template`: packed events with placeholders for ticks and sequences that a commit fills in
- :mod:`.pick`: the publications of packed events that match a filter
- :mod:`.scan`: the evaluation of a filter over packed events, one attribute at a time

The package is passive: nothing in it sends, writes or sets a timer.
"""
