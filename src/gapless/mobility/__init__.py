"""Mobility: durable subscriptions that change their hosting broker. Only forced moves are built.

Theory of operation
-------------------
One broker, the *hosting broker*, has a durable subscription and keeps the logs for it. The client
receives a hosting reference: incarnation key, epoch and broker. If the hosting broker does not
answer, the client presents at another broker the reference and its resume state: its filters, its
position, and what it has acknowledged. That broker creates the subscription from the position, with
the next *epoch* (:mod:`.epochs`), which is stored before the client is answered (:mod:`.resume`).
It reads the missed events from the logs (R48), which are kept above the acknowledged position. Then
it claims the subscription at all brokers (:mod:`.hosting`), repeatedly, and a broker that has the
subscription with a lower epoch ends it.

The order is essential. The former hosting broker, dead or alive, keeps the logs above the
acknowledged position. So the new broker claims the subscription only when it holds every log for it
too. Until then both keep the logs, and nothing is released in between (run 20 of the rules).

A client has no position on pubends created after it was answered. It brings the host times at which
its hosting brokers had its filter, and starts where the PHB knew the first of them
(:mod:`gapless.subscribers.start_guarantee`).

Invariants: of the brokers that have one subscription and know of each other, only the one with the
greatest epoch delivers to it. The client's position decides what the client receives, not the state
of a broker. A name that another subscription has is refused, never shared (MV-14, MV-16). A client
without a reference is redirected to the hosting broker of the name (:mod:`.lookup`), which is
searched for in the whole overlay (:mod:`.find`, MV-15). The move as a transaction (TM 4) is not
built.
"""

from gapless.mobility.collect import SubscriptionCollector
from gapless.mobility.find import SubscriptionFinder
from gapless.mobility.hosting import HostingBrokers
from gapless.mobility.lookup import Lookups
from gapless.mobility.resume import ForcedMoves
from gapless.mobility.walk import Walks

__all__ = [
    "ForcedMoves",
    "HostingBrokers",
    "Lookups",
    "SubscriptionCollector",
    "SubscriptionFinder",
    "Walks",
]
