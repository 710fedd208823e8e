"""Mobility: a client's subscriptions move with it. So far only forced moves are built.

Theory of operation
-------------------
A durable subscription is at one broker, its *hosting broker*, which keeps the logs for it. The client gets
a hosting reference: which subscription it is, and how often it has moved. If the hosting broker does not
answer, the client goes to any other broker with the reference, its filters, its position, and what it has
acknowledged. That broker makes the subscription anew from the position, with the next *epoch*
(:mod:`.epochs`), which is stored before the client is answered (:mod:`.resume`). What lies between is read
from the logs (R48), which are kept from what is acknowledged on. Then the broker tells all brokers
(:mod:`.hosting`), again and again, and a broker that has the subscription with a lesser epoch ends it.

The order matters. The former hosting broker, dead or alive, keeps the logs from what its client has
acknowledged. So the new one tells that it hosts the subscription only when every log is held for the
subscription there too. Until then both keep it, and nothing is released in between (run 20 of the rules).

A client has no position on pubends that were made after it was answered. It brings along since when its
hosting brokers had its filter, and starts where such a pubend knew one of them
(:mod:`gapless.subscribers.start_guarantee`).

Invariants: of the brokers that have one subscription and know of each other, only the one with the
greatest epoch runs it. A client's position decides what it gets, never what a broker believes. A name that
another subscription has is refused, never shared (MV-14, MV-16). A client without a reference that asks for
a name which its broker does not know gets a new subscription there: a search for hosting brokers (MV-15) is
not built, nor is the move as a transaction (TM 4).
"""

from gapless.mobility.hosting import HostingBrokers
from gapless.mobility.resume import ForcedMoves

__all__ = ["ForcedMoves", "HostingBrokers"]
