"""Pubend requests: reads, log holds, end of a membership; repeated until answered (R48, R49).

- :mod:`.carrier`: the forwarding of requests to a PHB, and of replies back
- :mod:`.pending_request_state`, :mod:`.pending`: the unanswered requests of this broker
- :mod:`.reads`: the reads of clients
"""
