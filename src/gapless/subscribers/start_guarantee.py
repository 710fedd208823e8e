"""Start guarantees: from when a subscription must receive pubends created later (R46, MV-13).

A subscription must receive of such a pubend every event published after the PHB knew the
subscription, by the virtual time of its SHB. After a failover the PHB knows the new SHB later than
it knew the old one. So a client brings the *host times* at which its hosting brokers had its
filter: an SHB and a virtual time each. The SHB queries the PHB at which tick it knew each host
time, and the subscription starts at the lowest. The former SHB may be dead, because a start needs
only a log and no tables.

Host times belong to a filter. A changed filter has its own host times, as at a single SHB (R47).

A virtual time alone does not prove that a pubend was created later: a covered filter starts with
the filter that covers it, which may be much older than the subscription. So an SHB names the
pubends that it knew when it replied to the client and on which the subscription has no start. A
pubend that is named without host times is older than the subscription, which starts there with the
latest events.

A subscription may start on such a pubend while its client is at another SHB. When the client
returns, the SHB queries the PHB about the other SHBs before the client is sent the start: the
earliest counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Final, NamedTuple

from gapless.content.filter import Filter
from gapless.core.ids import PubendId, ShbId, VirtualTime
from gapless.core.limits import START_GUARANTEE_PUBENDS_MAX, START_GUARANTEE_TIMES_MAX
from gapless.core.ticks import Tick
from gapless.messages.clients import HostTime, StartGuarantees
from gapless.messages.records import SubscriptionRecord
from gapless.pubend.known_hosts import KnownTimes

if TYPE_CHECKING:
    from gapless.subscribers.subscription import HostedSubscription

__all__ = [
    "NO_GUARANTEE",
    "ConfirmedFilter",
    "StartGuarantee",
    "SubscriptionGuarantees",
    "earliest_times",
    "guarantees_message",
    "invalid_reason",
]


class StartGuarantee(NamedTuple):
    """The host times from which a subscription must receive a pubend without a start."""

    time: VirtualTime | None
    """The virtual time at this SHB; None if this SHB knew the pubend before the subscription."""
    former_host_times: tuple[HostTime, ...] = ()
    """The host times at former SHBs."""

    @property
    def former_hosts(self) -> set[ShbId]:
        """The former SHBs about which the PHB is queried."""
        return {each.host for each in self.former_host_times}

    def all_times(self, host: ShbId) -> tuple[HostTime, ...]:
        """Return all host times, with that of this SHB, ``host``."""
        own = () if self.time is None else (HostTime(host, self.time),)
        return earliest_times(*self.former_host_times, *own)

    def start_after(self, host: ShbId, known: Mapping[ShbId, KnownTimes]) -> Tick | None:
        """Return the tick after which the PHB knew the subscription; None if it did not.

        ``known`` contains the virtual times of each SHB that the PHB knew, with their first ticks.
        """
        found = [
            next((tick for time, tick in known.get(each.host, ()) if time >= each.time), None)
            for each in self.all_times(host)
        ]
        return min((tick for tick in found if tick is not None), default=None)


NO_GUARANTEE: Final = StartGuarantee(None)
"""The pubend is older than the subscription."""


def earliest_times(*times: HostTime) -> tuple[HostTime, ...]:
    """Return the earliest time of each SHB, in order; of too many the first and the last."""
    first: dict[ShbId, VirtualTime] = {}
    for each in times:
        first[each.host] = min(each.time, first.get(each.host, each.time))
    found = [HostTime(host, time) for host, time in first.items()]
    if len(found) > START_GUARANTEE_TIMES_MAX:
        found = [found[0], *found[1 - START_GUARANTEE_TIMES_MAX :]]
    return tuple(found)


def guarantees_message(
    default: tuple[HostTime, ...], by_pubend: Mapping[PubendId, tuple[HostTime, ...]]
) -> StartGuarantees:
    """Return the start guarantees for a client.

    If there are too many pubends, only those with host times are named, and the default is empty:
    the subscription starts on all others with the latest events. With the default host times an
    older pubend could not be omitted: the subscription would start in its past.
    """
    if len(by_pubend) <= START_GUARANTEE_PUBENDS_MAX:
        return StartGuarantees(default, tuple(by_pubend.items()))
    named = [(pubend, times) for pubend, times in by_pubend.items() if times]
    return StartGuarantees((), tuple(named[:START_GUARANTEE_PUBENDS_MAX]))


def invalid_reason(guarantees: StartGuarantees) -> str | None:
    """Return why the start guarantees that a client brings are invalid; None if they are valid."""
    if len(guarantees.by_pubend) > START_GUARANTEE_PUBENDS_MAX:
        return (
            f"{len(guarantees.by_pubend)} start guarantees for pubends are too many; "
            f"no broker sends more than {START_GUARANTEE_PUBENDS_MAX} (START_GUARANTEE_PUBENDS_MAX)"
        )
    most = max(
        len(each) for each in (guarantees.default, *(times for _, times in guarantees.by_pubend))
    )
    if most > START_GUARANTEE_TIMES_MAX:
        return (
            f"{most} times of former hosting brokers are too many; "
            f"no broker sends more than {START_GUARANTEE_TIMES_MAX}"
        )
    return None


class ConfirmedFilter(NamedTuple):
    """A filter that was confirmed to the client, and its virtual start time."""

    filter: Filter
    time: VirtualTime
    former_host_times: tuple[HostTime, ...] = ()
    """The host times at which former hosting brokers had the filter."""


class SubscriptionGuarantees:
    """The start guarantees of one subscription, and the filter that was confirmed to its client."""

    def __init__(
        self, subscription: HostedSubscription, shb: ShbId, unannounced: AbstractSet[PubendId]
    ) -> None:
        self._subscription = subscription
        self._shb = shb
        self._unannounced = unannounced
        """Pubends that an earlier incarnation joined and that are not announced to this one yet."""
        self.by_pubend: dict[PubendId, StartGuarantee] = {}
        """Pubends created later than the subscription, on which it has not started. Each has the
        virtual time of the filter that the client knew when this SHB, or a former one, heard of the
        pubend. Pubends that are older according to the client are included (R46)."""
        self.confirmed: ConfirmedFilter | None = None
        """The filter that the client knows; None until the subscription is confirmed. The newest
        filter may differ: an operator set it, or its reply was lost in a crash."""
        self._previous: ConfirmedFilter | None = None
        """The filter that the client knew when the previous incarnation ended."""

    def has(self, pubend: PubendId) -> bool:
        """Return whether the PHB must be queried since when it knew the subscription."""
        return self.by_pubend.get(pubend, NO_GUARANTEE) != NO_GUARANTEE

    @property
    def newest(self) -> ConfirmedFilter:
        """The newest filter as it is confirmed to the client."""
        newest = self._subscription.newest
        assert newest.required_from is not None, "a filter is in a table before it is confirmed"
        return ConfirmedFilter(newest.filter, newest.required_from, newest.former_host_times)

    def confirm_newest(self) -> None:
        """The client knows the newest filter."""
        if self.confirmed != self.newest:
            self._subscription.note_change()
        self.confirmed = self.newest

    # --- guarantees ----------------------------------------------------------------------------

    def note(self, pubend: PubendId, advertisement: Filter) -> None:
        """Add a guarantee for a new pubend, from the virtual time of the confirmed filter on."""
        confirmed, held = self._confirmed_at(pubend), self.by_pubend.get(pubend)
        if confirmed is None or (held is not None and held.time is not None):
            return
        if not advertisement.intersects(confirmed.filter):
            confirmed = self.newest
        self.by_pubend[pubend] = StartGuarantee(
            confirmed.time, confirmed.former_host_times if held is None else held.former_host_times
        )
        self._subscription.note_change()

    def _confirmed_at(self, pubend: PubendId) -> ConfirmedFilter | None:
        """Return the filter that the client knew when this SHB heard of a pubend, now or earlier.

        A crash may have lost the guarantee that an earlier incarnation noted for the pubend.
        """
        if pubend in self._unannounced:
            return self._previous or self.confirmed
        return self.confirmed

    def clear(self, pubend: PubendId) -> None:
        """The subscription has started on a pubend, or will not start on it."""
        if self.by_pubend.pop(pubend, None) is not None:
            self._subscription.note_change()

    def set_former(self, pubend: PubendId, times: tuple[HostTime, ...]) -> None:
        """Set the guarantee of a pubend to host times of former SHBs only."""
        self.by_pubend[pubend] = NO_GUARANTEE._replace(former_host_times=times)

    def add_former(self, pubend: PubendId, times: tuple[HostTime, ...]) -> None:
        """Add host times of former SHBs to the guarantee of a pubend."""
        before = self.by_pubend.get(pubend, NO_GUARANTEE)
        joint = earliest_times(*before.former_host_times, *times)
        self.by_pubend[pubend] = before._replace(former_host_times=joint)

    # --- a subscription that moves or is replaced ----------------------------------------------

    def adopt_default(self, times: tuple[HostTime, ...]) -> None:
        """Take over the host times of the newest filter, which the client knows, at former SHBs."""
        self._subscription.newest.set_former_host_times(times)
        self.confirmed = self.newest

    def inherit(
        self, confirmed: ConfirmedFilter | None, guarantees: Mapping[PubendId, StartGuarantee]
    ) -> None:
        """Take over the guarantees of a subscription that this one replaces.

        The confirmed filter is taken over too, unless the client has brought its own.
        """
        if self.confirmed is None:
            self.confirmed = confirmed
        for pubend, each in guarantees.items():
            imported = self.by_pubend.get(pubend, NO_GUARANTEE)
            times = earliest_times(*imported.former_host_times, *each.former_host_times)
            self.by_pubend[pubend] = each._replace(former_host_times=times)

    def inheritance(self) -> dict[PubendId, StartGuarantee]:
        """Return all guarantees, also of starts that the client may not know."""
        started = {
            pubend: StartGuarantee(None, cursor.verification.started_by)
            for pubend, cursor in self._subscription.cursors.items()
            if cursor.verification.started_by
        }
        return {**self._of_unannounced(), **started, **self.by_pubend}

    def _of_unannounced(self) -> dict[PubendId, StartGuarantee]:
        """Return the guarantees of pubends that are not announced to this incarnation yet."""
        before = self._previous
        if before is None:
            return {}
        guarantee = StartGuarantee(before.time, before.former_host_times)
        cursors = self._subscription.cursors
        return {each: guarantee for each in sorted(self._unannounced) if each not in cursors}

    def message(self) -> StartGuarantees | None:
        """Return the guarantees for the client, by the newest filter; None if it is not durable."""
        if not self._subscription.durable:
            return None
        guarantees = {**self._of_unannounced(), **self.by_pubend}
        by_pubend = {pubend: each.all_times(self._shb) for pubend, each in guarantees.items()}
        for pubend, cursor in self._subscription.cursors.items():
            if not cursor.start_confirmed and pubend not in by_pubend:
                by_pubend[pubend] = cursor.verification.started_by
        newest = self.newest
        default = StartGuarantee(newest.time, newest.former_host_times)
        return guarantees_message(default.all_times(self._shb), by_pubend)

    # --- the record ----------------------------------------------------------------------------

    def restore(self, record: SubscriptionRecord) -> None:
        """Restore the guarantees from the record. The newest filter is in the table already."""
        self.confirmed = self.newest
        if record.confirmed_filter is not None:
            text, time = record.confirmed_filter
            self.confirmed = ConfirmedFilter(Filter(text), time, record.confirmed_filter_times)
        self._previous = self.confirmed
        if record.previous_confirmed_filter is not None:
            text, time, since = record.previous_confirmed_filter
            self._previous = ConfirmedFilter(Filter(text), time, since)
        self.by_pubend = {pubend: StartGuarantee(time) for pubend, time in record.host_guarantees}
        for pubend, host_times in record.former_host_guarantees:
            before = self.by_pubend.get(pubend, NO_GUARANTEE)
            self.by_pubend[pubend] = before._replace(former_host_times=host_times)

    def confirmed_record(self) -> tuple[tuple[str, VirtualTime] | None, tuple[HostTime, ...]]:
        """Return the confirmed filter, if not the newest, and its host times at former SHBs."""
        confirmed = self.confirmed
        if confirmed is None or confirmed == self.newest:
            return None, ()
        return (str(confirmed.filter), confirmed.time), confirmed.former_host_times

    def previous_record(self) -> tuple[str, VirtualTime, tuple[HostTime, ...]] | None:
        """Return the filter confirmed before this incarnation, if a pubend still needs it."""
        before = self._previous
        if before is None or before == self.confirmed or not self._unannounced:
            return None
        return str(before.filter), before.time, before.former_host_times
