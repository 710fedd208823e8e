"""Requests to the PHB of a pubend and to named brokers, repeated until answered (R48, R49).

- :mod:`.recorded_route`: the route that a request records, by which its reply returns
- :mod:`.pending_request_state`, :mod:`.repetition`: attempts under new ids, with growing pauses
- :mod:`.carrier`, :mod:`.pending`: requests to pubends, forwarded hop by hop
- :mod:`.reads`: the reads of clients
"""
