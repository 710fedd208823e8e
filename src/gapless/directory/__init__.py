"""The directory: where pubends are and were.

- :mod:`.announcements`: which pubends exist, in which direction (R4)
- :mod:`.locations`: which broker has a pubend, as this broker has heard and stored
"""
