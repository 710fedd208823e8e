"""The broker: a deterministic state machine without IO, made of components.

Theory of operation
-------------------
``step(event, now)`` passes an event to its component. Inside one broker the subscriber side and the
router exchange the same messages as two brokers: the subscriber side attaches to the router of its
own broker, which feeds it and receives its reports. Such messages never leave the broker. A step
ends when all of them are handled. Then the messages for peers are sent, one packet per peer.

A new incarnation is on disk before anything else happens (R1). Earlier events wait for that write.

- :mod:`.entry`: the entry point, and the order of a step
- :mod:`.assembly`: the components, their connections, and the order in which they start
- :mod:`.dispatch`: the component for each event, message or request
- :mod:`.notifications`: calls from components to the components above them
- :mod:`.stream_messages`: the messages of streams, for the leaf, the router or both
- :mod:`.joining`: the cell of a broker that was appended to a running overlay
- :mod:`.configuration`: the configuration that the records of a disk belong to
"""

from gapless.broker.entry import Broker

__all__ = ["Broker"]
