"""The broker: a deterministic state machine without IO, made of rooms.

Theory of operation
-------------------
``step(event, now)`` gives an event to the room it is for. What rooms have to say to each other
inside one broker travels like messages between brokers: the subscriber role attaches at the router
of its own broker, and is fed and reports by messages that never leave. A step ends when these have
all been taken; then what is for others goes out, one packet a peer.

A new life is on disk before anything else happens (R1). What comes before that waits.

- :mod:`.entry`: the door, the rooms, the order in which they are asked
- :mod:`gapless.propagation.exchange`: tables of subscriptions on their way (R15 to R21)
- :mod:`.routing`: what the overlay and the tables tell the router (R6, R7, R10, R25)
- :mod:`.pubends`: pubends of this broker, and the calls of publishers (R27 to R33)
- :mod:`.naming`: the names of new pubends, asked for everywhere; whose they are is
  in :mod:`gapless.directory.locations` (R4)
- :mod:`.readers`: clients that read a log
- :mod:`.inspection`: what operators ask to see
"""

from gapless.broker.entry import Broker

__all__ = ["Broker"]
