"""Messages of mobility: which broker hosts a durable subscription."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import msgspec

from gapless.core.ids import BrokerId
from gapless.core.numbers import ComposedName, Count, Epoch, Name, Signed
from gapless.messages.overlay import PathEpochs

__all__ = [
    "CollectSubscriptions",
    "DurableEntry",
    "FindStatus",
    "FindSubscription",
    "SubscriptionFound",
    "SubscriptionHost",
    "SubscriptionsCollected",
    "Superseded",
    "WalkKey",
]


class Superseded(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A broker claims a durable subscription; former hosting brokers end it (MV-14). Flooded."""

    incarnation_key: ComposedName
    """Identifies the subscription. Unlike a name it is never used twice."""
    epoch: Epoch
    """How many times the subscription had changed its hosting broker, this one included."""
    broker: BrokerId
    sent_at: Signed = 0
    """When the hosting broker last sent the claim, by its clock. It repeats the claim, others
    expire it."""

    @property
    def rank(self) -> tuple[int, BrokerId]:
        """The claim with the greater rank wins: the greater epoch, then the greater broker id."""
        return self.epoch, self.broker


# --- finding a subscription by its name -----------------------------------------------------------


class WalkKey(NamedTuple):
    """Identifies a walk over the tree."""

    requester: BrokerId
    incarnation: Count
    """Of the requester."""
    number: Count
    """Counts the walks of the requester in its incarnation."""


class FindStatus(IntEnum):
    """The result of a search for a durable subscription."""

    NONE = 0
    """All brokers have answered that they do not host it."""
    FOUND = 1
    UNKNOWN = 2
    """Some broker did not answer, and may host it."""
    CONTESTED = 3
    """Another broker searches for the same name now, and may create it."""
    RETRY = 4
    """The tree has changed meanwhile: the requester asks anew (RS-15a)."""


class SubscriptionHost(msgspec.Struct, frozen=True, array_like=True):
    """A durable subscription and the broker that hosts it."""

    broker: BrokerId
    incarnation_key: ComposedName
    epoch: Epoch
    addresses: tuple[str, ...] = ()
    """At which clients reach the broker, by its own configuration."""
    corrupt: bool = False
    """Whether the record is corrupt: the subscription is neither served nor created anew."""


class FindSubscription(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Asks which broker hosts a durable subscription. Forwarded from cell to cell (MV-15)."""

    key: WalkKey
    owner: Name
    """Always empty: all subscriptions have one owner."""
    name: Name
    wait_ms: Count
    """How long the sender waits. Each broker on the way waits a little less than that."""
    path_epochs: PathEpochs = ()
    """Of the edges that the question crosses (RS-15a)."""


class SubscriptionFound(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The answer to FindSubscription, for the sender and the brokers beyond it."""

    key: WalkKey
    status: FindStatus
    host: SubscriptionHost | None = None
    silent: tuple[BrokerId, ...] = ()
    """Brokers that did not answer; of many only some. If contested: the broker that searches."""


# --- all durable subscriptions of the overlay -----------------------------------------------------


class DurableEntry(msgspec.Struct, frozen=True, array_like=True):
    """A durable subscription in a list of the whole overlay."""

    name: Name
    host: SubscriptionHost
    filter: str
    client: str | None
    """The client session that has it; None while it is disconnected."""
    disconnected_since: Count | None
    """By the wall clock of its broker, in microseconds; None while it is connected."""

    @property
    def place(self) -> tuple[str, BrokerId]:
        """The sort key of the list."""
        return self.name, self.host.broker


class CollectSubscriptions(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Asks for the durable subscriptions of all brokers, one page. Forwarded from cell to cell."""

    key: WalkKey
    after: tuple[Name, BrokerId]
    """The page starts after this name and broker."""
    wait_ms: Count
    path_epochs: PathEpochs = ()
    """Of the edges that the question crosses (RS-15a)."""


class SubscriptionsCollected(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A page of the sender and the brokers beyond it, in the order of names and brokers."""

    key: WalkKey
    entries: tuple[DurableEntry, ...]
    more: bool
    silent: tuple[BrokerId, ...] = ()
    """Brokers that did not answer; of many only some."""
    retry: bool = False
    """Whether the tree has changed meanwhile, so that the requester asks anew (RS-15a)."""
