"""Feeds: how a receiver gets a pubend's stream from a broker nearer to the pubend (R7 to R9).

- :mod:`.feed_state`: the states of a feed, and its table
- :mod:`.feed`: the feed of one receiver: it has one feeder, and changes to another
- :mod:`.paths`: the interface by which a feed gets its candidates
- :mod:`.candidates`: the brokers that may feed this one, and the receivers that it may feed
"""
