"""The directory: which pubends exist, which brokers have them, and what their names mean.

- :mod:`.announcements`: the pubends that exist, and the path to each (R4)
- :mod:`.locations`: the broker of each pubend, as this broker has heard and stored
- :mod:`.hosted`: the pubends of this broker; :mod:`.status`: whether a pubend may return
- :mod:`.names`, :mod:`.name_query_state`, :mod:`.name_query`: names, and queries for new ones (R4)
"""
