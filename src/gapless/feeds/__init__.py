"""Feeds: how a receiver gets a pubend's stream from a broker nearer to the pubend (R7 to R9).

- :mod:`.feed_state`: the states of a feed, and its table
- :mod:`.feed`: a receiver's hold on one feeder, and its change to another
- :mod:`.paths`: candidates, and what a feed asks of the tree and the sessions
"""
