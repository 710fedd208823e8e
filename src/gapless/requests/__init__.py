"""Requests to the broker of a pubend, routed hop by hop and repeated until they are answered (R48, R49, R55).

- :mod:`.carrier`: the requests of this broker and those that it passes on
"""
