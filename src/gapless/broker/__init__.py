"""The broker: a deterministic state machine without IO, made of components.

Theory of operation
-------------------
``step(event, now)`` gives an event to the component it is for. Inside one broker the subscriber side and the
router exchange the same messages as two brokers: the subscriber side attaches at the router of its own
broker, which feeds it and receives its reports. Such messages never leave the broker. A step ends when all of
them are taken. Then the messages for peers are sent, one packet a peer.

A new incarnation is on disk before anything else happens (R1). Events that come before that wait.

- :mod:`.entry`: the entry point, and the order of a step
- :mod:`.assembly`: which components there are, how they are connected, in which order they start
- :mod:`.dispatch`: which component takes an event, a message or a request
- :mod:`.notifications`: what components tell those above them
- :mod:`.stream_messages`: the messages of streams, for the leaf, the router or both
- :mod:`.routing`: what the overlay and the tables tell the router (R6, R7, R10, R25)
- :mod:`.configuration`: the configuration that the records of a disk belong to
"""

from gapless.broker.entry import Broker

__all__ = ["Broker"]
