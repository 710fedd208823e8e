"""Pubend requests: reads, log holds and the end of a membership, repeated until answered (2.4; R48, R49).

- :mod:`.carrier`: requests on their way to a PHB and back
- :mod:`.pending_request_state`, :mod:`.pending`: the requests of this broker until they are answered
"""
