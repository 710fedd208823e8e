"""Interfaces that other components implement for the subscriber side. The broker passes them in."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol

from gapless.content import Conjunction
from gapless.core.ids import BrokerId, MembershipId, PubendId, ShbId, VirtualTime
from gapless.core.ticks import Tick
from gapless.messages.clients import HostingReference, StartPoint, Subscribe
from gapless.messages.pubend_requests import LogHoldId, ReadReply
from gapless.messages.streams import Member

if TYPE_CHECKING:
    from gapless.content.filter import Filter
    from gapless.subscribers.subscription import HostedSubscription

__all__ = [
    "CancellableRequest",
    "Hosting",
    "HostingSearch",
    "Interest",
    "PubendRequester",
    "PubendStatus",
    "ResumeRules",
]


class Interest(Protocol):
    """The subscription table of this SHB: the filters that its subscriptions need."""

    @property
    def time(self) -> VirtualTime:
        """The virtual time of the newest version."""

    @property
    def roots(self) -> frozenset[Conjunction]:
        """The conjunctions that cover all others."""

    def own(self, owner: int, conjunctions: Iterable[Conjunction]) -> VirtualTime:
        """Add the conjunctions of an owner; return the virtual time at which they start."""

    def disown(self, owner: int) -> None:
        """Remove the conjunctions of an owner."""


class CancellableRequest(Protocol):
    """A pubend request that is repeated until it is answered or cancelled."""

    def cancel(self) -> None:
        """Stop repeating the request. The callback is not called."""


class PubendRequester(Protocol):
    """Requests to the PHB of a pubend."""

    def read(
        self,
        pubend: PubendId,
        filter_text: str,
        low: Tick,
        high: Tick,
        *,
        log_hold: LogHoldId | None,
        then: Callable[[ReadReply], None],
        log_hold_tick: Tick | None = None,
        joining_member: Member | None = None,
        former_hosts: tuple[ShbId, ...] = (),
        fault: Callable[[str], None] = ...,
    ) -> CancellableRequest:
        """Read a range of a log (R48)."""

    def release_log_hold(
        self, pubend: PubendId, log_hold: LogHoldId, then: Callable[[], None]
    ) -> CancellableRequest:
        """Release a log hold (R49)."""

    def leave(
        self, pubend: PubendId, shb: ShbId, membership: MembershipId, then: Callable[[], None]
    ) -> CancellableRequest:
        """End the membership of an SHB (R43, R55)."""


class PubendStatus(Protocol):
    """The status of pubends whose PHB was retired or cannot be reached (R26)."""

    def is_phb_gone(self, pubend: PubendId) -> bool:
        """Return whether the PHB is retired, or has returned without the pubend."""

    def returned_at(self, pubend: PubendId) -> Tick:
        """Return the tick above which no merge continued without a pubend whose PHB has returned.

        It is 0 if the PHB was never retired.
        """

    def found(self, pubend: PubendId) -> None:
        """Note that a pubend is fed again, or was fed all the time."""

    def obstacle(self, pubend: PubendId) -> str:
        """Return what prevents a feed of a pubend, as a text for operators (R11, R12)."""

    def is_closed(self, pubend: PubendId) -> bool:
        """Return whether a pubend is a tombstone, as far as that is remembered (RS-34)."""

    def sealed_at(self, pubend: PubendId) -> Tick | None:
        """Return the last tick of a sealed pubend, as far as that is known (RS-32)."""

    def end_of(self, pubend: PubendId) -> tuple[Tick, Tick] | None:
        """Return the last tick of a tombstone with a log, and that of its last event (RS-34)."""

    def broker_of(self, pubend: PubendId) -> BrokerId | None:
        """Return the broker that has a pubend, if one is known."""


class Hosting(Protocol):
    """Subscriptions that moved to another hosting broker."""

    def newer_hosting(self, reference: HostingReference) -> HostingReference | None:
        """Return the newer reference if the subscription has moved since the client's."""

    def forget_moved(self, subscription: HostedSubscription) -> None:
        """The client has ended a subscription that had moved to this broker."""

    def end_remote(self, reference: HostingReference) -> None:
        """A client has ended, at this broker, a subscription that another broker hosts."""


class HostingSearch(Protocol):
    """Requests for a durable subscription by its name alone (MV-15)."""

    def confirm(self, name: str) -> None:
        """A client has presented a reference to a subscription: that decides, not a search."""

    def give_up(self, client: str, name: str) -> None:
        """A client does not want a subscription any more: its requests are not executed."""

    def resolve(
        self,
        client: str,
        request: int,
        name: str,
        execute: Callable[[], None],
        *,
        anyway: bool = False,
        wait_ms: int = 0,
    ) -> None:
        """Execute a request here if this broker hosts the subscription, or none does.

        Otherwise redirect or refuse it. ``anyway``: execute it also if some broker is silent.
        ``wait_ms``: how long the others are waited for at most, if it is above 0.
        """


class ResumeRules(Protocol):
    """How this broker takes over a durable subscription from its client's resume state (MV-13)."""

    def identity(self, reference: HostingReference) -> tuple[str, int]:
        """Return the incarnation key and the epoch of a subscription that moves here."""

    def retained_start(self, call: Subscribe) -> StartPoint:
        """Return the start of a new subscription. The logs are kept from this start on."""

    def is_behind(self, found: HostedSubscription, reference: HostingReference) -> bool:
        """Return whether the client may have used another broker since it left this one."""

    def is_outdated(self, found: HostedSubscription, call: Subscribe, new_filter: Filter) -> bool:
        """Return whether the client used another broker, with filters that are missing here."""

    def adopt_resume_state(self, made: HostedSubscription, call: Subscribe) -> None:
        """Take seeks, past filters and acknowledgements from the client's resume state."""

    def adopt_guarantees(self, made: HostedSubscription, call: Subscribe) -> None:
        """Take the start guarantees of a new subscription, whose filter is already in the table."""

    def resume_returned(self, found: HostedSubscription, call: Subscribe) -> bool:
        """Continue with a subscription whose client may have used another broker.

        Returns whether the subscription continues exactly at the client's position, also if that is
        below the acknowledged tick.
        """
