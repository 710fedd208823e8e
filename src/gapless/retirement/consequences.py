"""The consequences of a retirement for logs, names, locations and cursors (R26).

A retired broker is a PHB and an SHB. As an SHB it acknowledges nothing more: while the retirement
is recent, pubends keep nothing for it. As a PHB it has pubends that no broker feeds any more:
cursors do not wait for them, and their names are free. If the broker returns, its pubends are
accepted again, except those that it lost with its disk.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from gapless.core.ids import BrokerId, PubendId, ShbId
from gapless.directory.announcements import KnownPubends
from gapless.subscribers.protocols import PubendStatus

__all__ = [
    "AbandonedStreams",
    "JoinedPubends",
    "RetiredMembers",
    "Retirement",
    "RetirementRecords",
    "StoredLocations",
]


class RetirementRecords(Protocol):
    """The retirements and returns that this broker knows."""

    def __contains__(self, shb: ShbId) -> bool:
        """Return whether a broker is retired."""

    def all(self) -> Iterable[ShbId]:
        """Return all retired brokers."""

    def returned(self) -> Iterable[ShbId]:
        """Return all brokers that were retired and have returned."""

    def is_recent(self, shb: ShbId) -> bool:
        """Return whether a retirement is recent; only then logs and names are released."""

    def is_back(self, shb: ShbId) -> bool:
        """Return whether a broker was retired and has returned."""

    def returned_with(self, shb: ShbId, pubend: PubendId) -> bool:
        """Return whether a broker has returned with a pubend."""

    def returned_without(self, shb: ShbId, pubend: PubendId) -> bool:
        """Return whether a broker has returned without a pubend that it had."""


class StoredLocations(Protocol):
    """The brokers of all pubends that this broker has heard of."""

    def pubends_at(self, broker: BrokerId) -> Iterable[PubendId]:
        """Return the known pubends of another broker."""

    def pubends_of_retired(self, broker: BrokerId) -> Iterable[PubendId]:
        """Return the pubends of a retired broker that no other broker has since."""

    def former_broker_of(self, pubend: PubendId) -> BrokerId | None:
        """Return the retired broker of a pubend, or None if another broker has it since."""

    def is_lost(self, pubend: PubendId) -> bool:
        """Return whether the broker of a pubend has returned without it."""

    def add(self, pubend: PubendId, broker: BrokerId) -> None:
        """Store the broker of a pubend unless it has lost it."""

    def mark_host_retired(self, pubend: PubendId) -> None:
        """Free the name of a pubend: its broker is retired."""

    def mark_lost(self, pubend: PubendId, broker: BrokerId) -> None:
        """Note that a broker has returned without a pubend."""


class RetiredMembers(Protocol):
    """The pubends of this broker, which keep their logs for members."""

    def retire(self, shb: ShbId) -> None:
        """Keep nothing for an SHB that will not return."""

    def readmit(self, shb: ShbId) -> None:
        """Accept the reports of a retired SHB again."""


class JoinedPubends(Protocol):
    """The pubends that this broker's subscriptions have joined."""

    def __contains__(self, pubend: PubendId) -> bool:
        """Return whether this broker is a member of a pubend."""

    def is_abandoned(self, pubend: PubendId) -> bool:
        """Return whether a pubend is abandoned."""


class AbandonedStreams(Protocol):
    """The streams of the subscriber side, which may be abandoned."""

    @property
    def memberships(self) -> JoinedPubends:
        """The memberships of this broker."""

    def review_abandoned(self, pubend: PubendId) -> None:
        """Abandon a pubend if its PHB is retired and no broker feeds it."""

    def pubend_returned(self, pubend: PubendId) -> None:
        """Wait for a pubend again."""


class Retirement:
    """Applies retirements and returns of brokers to the other components."""

    def __init__(
        self,
        retirements: RetirementRecords,
        announcements: KnownPubends,
        locations: StoredLocations,
        status: PubendStatus,
        members: RetiredMembers,
        subends: AbandonedStreams,
    ) -> None:
        self._retirements = retirements
        self._announcements = announcements
        self._locations = locations
        self._status = status
        self._members = members
        self._subends = subends

    def start(self) -> None:
        """Apply the stored retirements again: a crash may have interrupted their consequences."""
        for shb in (*self._retirements.all(), *self._retirements.returned()):
            self.changed(shb)

    def changed(self, shb: ShbId) -> None:
        """A broker was retired or has returned, or its retirement is no longer recent or known."""
        if self._retirements.is_recent(shb):
            self._members.retire(shb)
        else:
            self._members.readmit(shb)
        if shb in self._retirements:
            self._abandon_pubends_of(shb.broker)
        elif self._retirements.is_back(shb):
            self._accept_pubends_of(shb)

    def located(self, pubend: PubendId, shb: ShbId) -> None:
        """Store the location of an announced pubend.

        An announcement of a pubend that a retired broker had is only a repetition of an old one.
        """
        if self._locations.former_broker_of(pubend) == shb.broker and (
            shb in self._retirements or self._retirements.returned_without(shb, pubend)
        ):
            return
        self._locations.add(pubend, shb.broker)

    def _abandon_pubends_of(self, broker: BrokerId) -> None:
        for pubend in self._pubends_of(broker):
            self._subends.review_abandoned(pubend)
        memberships = self._subends.memberships
        for pubend in self._locations.pubends_at(broker):
            # the location of a pubend that is fed must be kept, also after a crash
            if pubend not in memberships or memberships.is_abandoned(pubend):
                self._locations.mark_host_retired(pubend)

    def _accept_pubends_of(self, shb: ShbId) -> None:
        """Accept the pubends of a broker that returned, except those that it lost with its disk."""
        locations, retirements = self._locations, self._retirements
        memberships = self._subends.memberships
        for pubend in self._pubends_of(shb.broker):
            # a pubend created after the return may be known here before the return is
            was_at_retired = locations.former_broker_of(
                pubend
            ) == shb.broker or memberships.is_abandoned(pubend)
            if was_at_retired and retirements.returned_without(shb, pubend):
                if not locations.is_lost(pubend):
                    locations.mark_lost(pubend, shb.broker)
                self._subends.review_abandoned(pubend)
            elif not locations.is_lost(pubend) or retirements.returned_with(shb, pubend):
                locations.add(pubend, shb.broker)  # the name was free during the retirement
                self._subends.pubend_returned(pubend)

    def _pubends_of(self, broker: BrokerId) -> list[PubendId]:
        """Return a broker's pubends: by announcement, by stored location, or at its retirement."""
        locations = self._locations
        known = {
            *self._announcements.pubends(),
            *locations.pubends_at(broker),
            *locations.pubends_of_retired(broker),
        }
        return sorted(each for each in known if self._status.broker_of(each) in {None, broker})
