"""Feeds: how a receiver gets a pubend's stream from a broker nearer to the pubend (R7 to R9).

- :mod:`.feed`: a receiver's hold on one feeder, and how it changes to another
"""
