"""What the subscriber side asks of other components. The broker gives the implementations to constructors."""

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
    "ForcedMoves",
    "Hosting",
    "Interest",
    "PendingRequest",
    "PubendRequests",
    "PubendStatus",
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


class PendingRequest(Protocol):
    """A pubend request that is repeated until it is answered or cancelled."""

    def cancel(self) -> None:
        """Stop repeating it, and do not call back."""


class PubendRequests(Protocol):
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
    ) -> PendingRequest:
        """Read a range of a log (R48)."""

    def release_log_hold(
        self, pubend: PubendId, log_hold: LogHoldId, then: Callable[[], None]
    ) -> PendingRequest:
        """Release a log hold (R49)."""

    def leave(
        self, pubend: PubendId, shb: ShbId, membership: MembershipId, then: Callable[[], None]
    ) -> PendingRequest:
        """End the membership of an SHB (R43, R55)."""


class PubendStatus(Protocol):
    """What is known of pubends whose broker was retired or cannot be reached (R26)."""

    def is_gone(self, pubend: PubendId) -> bool:
        """Say whether the PHB was retired and has not returned, or has returned without the pubend."""

    def returned_at(self, pubend: PubendId) -> Tick:
        """Return the tick above which no merge continued without a pubend whose PHB has returned.

        It is 0 if the PHB was never retired.
        """

    def found(self, pubend: PubendId) -> None:
        """Note that a pubend is fed again, or was fed all the time."""

    def obstacle(self, pubend: PubendId) -> str:
        """Say what prevents a feed of a pubend; for people only (R11, R12)."""

    def broker_of(self, pubend: PubendId) -> BrokerId | None:
        """Return the broker that has a pubend, if one is known."""


class Hosting(Protocol):
    """What is known of subscriptions that moved to another hosting broker."""

    def newer_hosting(self, reference: HostingReference) -> HostingReference | None:
        """Return where a subscription is hosted, if it moved after its client got its reference."""

    def forget_moved(self, subscription: HostedSubscription) -> None:
        """The client of a subscription that had moved here has ended it."""

    def end_remote(self, reference: HostingReference) -> None:
        """A client has ended here a subscription that is hosted elsewhere."""


class ForcedMoves(Protocol):
    """How this broker takes over a durable subscription that its client brings along (MV-13)."""

    def identity(self, reference: HostingReference) -> tuple[str, int]:
        """Return the incarnation key and the epoch of a subscription that moves here."""

    def retained_start(self, call: Subscribe) -> StartPoint:
        """Return the start of a new subscription; the logs are kept from there on."""

    def is_behind(self, found: HostedSubscription, reference: HostingReference) -> bool:
        """Say whether the client may have continued elsewhere since it left this subscription."""

    def is_outdated(self, found: HostedSubscription, call: Subscribe, wanted: Filter) -> bool:
        """Say whether the client continued elsewhere with filters that this subscription lacks."""

    def adopt_resume_state(self, made: HostedSubscription, call: Subscribe) -> None:
        """Take over the seeks, the past filters and the acknowledgements of a new subscription."""

    def adopt_guarantees(self, made: HostedSubscription, call: Subscribe) -> None:
        """Take over the start guarantees of a new subscription; its filter is in the table."""

    def resume_returned(self, found: HostedSubscription, call: Subscribe) -> bool:
        """Continue with a subscription whose client may have been elsewhere.

        Says whether the client's own position counts exactly, also below what it acknowledged.
        """
