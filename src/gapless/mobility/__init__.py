"""Mobility: a client's subscriptions move with it. So far by force: its broker does not answer.

Theory of operation
-------------------
A durable subscription lives at one broker, its *home*, which keeps the log for it. Its client gets a
token from there: which subscription it is, and how often it has moved. If the home does not answer, the
client goes to any other broker with token, filters, its own position, and what it has acknowledged. That
broker makes the subscription anew from the position, with the next *epoch*, durable before it is told;
what lies between is read from the logs (R48), which are kept from what is acknowledged on. Then it lets
all brokers know (:mod:`.hosting`), again and again, and whoever has the subscription with a lesser epoch
drops it. Every attempt of a client counts as an epoch, so that a broker it has left does not win over its
home. The token names who has answered last: only that broker may go on with what it has, everywhere else
what the client brings counts.

In which order matters. The old home, dead or alive, keeps the log from where its client has
acknowledged. So the new one says that it is home only when every log is held for the subscription there
too; until then both keep it, and nothing is released in between (run 20 of the rules).

A client has no place on pubends that were made since it was told where it is. It brings along since when its
homes had its filter, and begins where such a pubend knew of one of them
(:mod:`gapless.subscribers.start_guarantee`).

Invariants: of the homes of one subscription that know of each other only the one with the greatest
epoch runs it; a client's position decides what it gets, never what a home believes; a name that another
subscription has is refused, never shared (MV-14, MV-16). A client without token that asks for a name
which its broker does not know gets a new subscription there: looking for homes (MV-15) is not built,
nor is the move as a transaction (TM 4).
"""

from gapless.mobility.hosting import HostingBrokers

__all__ = ["HostingBrokers"]
