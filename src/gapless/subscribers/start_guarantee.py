"""Start guarantees: since when a subscription must get pubends that are newer than it (R46, MV-13).

A subscription must get of a newer pubend what was published after the PHB knew it, by the virtual time of
its SHB. After a failover the PHB knows the new SHB later than it knew the old one. So a client brings
along when its hosting brokers had its filter, as *host times*: an SHB and a virtual time. The pubend is
asked at which tick it knew each of them, and the subscription starts at the first. It makes no difference
that the former SHB is dead, because a start needs only a log and no tables.

Host times belong to a filter. A changed filter has its own host times, as at a single SHB (R47).

A virtual time alone does not say that a pubend is newer: a filter that is covered starts with the filter
that covers it, which may be much older than the subscription. So an SHB names the pubends that it knew
when it replied to the client and on which the subscription has no start. A pubend that is named without
host times was there before the subscription, which starts there with what comes.

An SHB may start on a newer pubend while the client is at another one. When the client returns, the
pubend is asked about the other SHBs before the client gets to know the start: the first one counts.
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
    """Since when a subscription must get a pubend on which it has not started."""

    time: VirtualTime | None
    """By the virtual time of its present SHB; None if that knew the pubend before the subscription."""
    former_host_times: tuple[HostTime, ...] = ()
    """By former SHBs."""

    @property
    def former_hosts(self) -> set[ShbId]:
        """The former SHBs that the pubend is asked about."""
        return {each.host for each in self.former_host_times}

    def all_times(self, host: ShbId) -> tuple[HostTime, ...]:
        """Return its host times, with that of the present SHB."""
        own = () if self.time is None else (HostTime(host, self.time),)
        return earliest_times(*self.former_host_times, *own)

    def start_after(self, host: ShbId, known: Mapping[ShbId, KnownTimes]) -> Tick | None:
        """Return the tick after which the pubend knew the subscription; None if it did not.

        ``known`` says which virtual times of SHBs the pubend knew, and from which tick on.
        """
        found = [
            next((tick for time, tick in known.get(each.host, ()) if time >= each.time), None)
            for each in self.all_times(host)
        ]
        return min((tick for tick in found if tick is not None), default=None)


NO_GUARANTEE: Final = StartGuarantee(None)
"""The pubend was there before the subscription."""


def earliest_times(*times: HostTime) -> tuple[HostTime, ...]:
    """Return the earliest time of each SHB, in this order; of too many the first and the last ones."""
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

    Of too many pubends only those with host times are named, and then all others have none: the
    subscription starts there with what comes. To leave out a pubend that was there before would be
    wrong: the subscription would start there in the past, by the default host times.
    """
    if len(by_pubend) <= START_GUARANTEE_PUBENDS_MAX:
        return StartGuarantees(default, tuple(by_pubend.items()))
    named = [(pubend, times) for pubend, times in by_pubend.items() if times]
    return StartGuarantees((), tuple(named[:START_GUARANTEE_PUBENDS_MAX]))


def invalid_reason(guarantees: StartGuarantees) -> str | None:
    """Say what is wrong with the start guarantees that a client brings along; None if nothing is."""
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
    """A filter that the client knows to be in effect, and the virtual time from which it is."""

    filter: Filter
    time: VirtualTime
    former_host_times: tuple[HostTime, ...] = ()
    """When former hosting brokers had it."""


class SubscriptionGuarantees:
    """The start guarantees of one subscription, and what its client knows of its filter."""

    def __init__(
        self, subscription: HostedSubscription, shb: ShbId, unannounced: AbstractSet[PubendId]
    ) -> None:
        self._subscription = subscription
        self._shb = shb
        self._unannounced = unannounced
        """Pubends that an earlier incarnation joined and that are not announced to this one yet."""
        self.by_pubend: dict[PubendId, StartGuarantee] = {}
        """Pubends that are newer than the subscription and on which it has not started, each with the
        virtual time of the filter that the client knew when this SHB, or a former one, heard of the
        pubend; and those of which the client brought along that they are not newer (R46)."""
        self.confirmed: ConfirmedFilter | None = None
        """The filter that the client knows; None before it was told that the subscription has started.
        The newest one may differ: an operator set it, or its reply was lost in a crash."""
        self._previous: ConfirmedFilter | None = None
        """The filter that the client knew when the incarnation before this one ended."""

    def has(self, pubend: PubendId) -> bool:
        """Say whether a pubend has to be asked since when it knew the subscription."""
        return self.by_pubend.get(pubend, NO_GUARANTEE) != NO_GUARANTEE

    @property
    def newest(self) -> ConfirmedFilter:
        """The newest filter, in the form in which the client is told of it."""
        newest = self._subscription.newest
        assert newest.required_from is not None, "it was in a table before a client heard of it"
        return ConfirmedFilter(newest.filter, newest.required_from, newest.former_host_times)

    def confirm_newest(self) -> None:
        """The client knows the newest filter."""
        if self.confirmed != self.newest:
            self._subscription.note_change()
        self.confirmed = self.newest

    # --- what is guaranteed --------------------------------------------------------------------

    def note(self, pubend: PubendId, advertisement: Filter) -> None:
        """Guarantee a pubend of which the client could not know, from the filter on that it knows."""
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

        What an earlier incarnation noted when it heard of the pubend may have been lost in a crash.
        """
        if pubend in self._unannounced:
            return self._previous or self.confirmed
        return self.confirmed

    def clear(self, pubend: PubendId) -> None:
        """The subscription has started on a pubend, or will not."""
        if self.by_pubend.pop(pubend, None) is not None:
            self._subscription.note_change()

    def set_former(self, pubend: PubendId, times: tuple[HostTime, ...]) -> None:
        """Ask a pubend about former SHBs alone."""
        self.by_pubend[pubend] = NO_GUARANTEE._replace(former_host_times=times)

    def add_former(self, pubend: PubendId, times: tuple[HostTime, ...]) -> None:
        """Ask a pubend about former SHBs too."""
        before = self.by_pubend.get(pubend, NO_GUARANTEE)
        joint = earliest_times(*before.former_host_times, *times)
        self.by_pubend[pubend] = before._replace(former_host_times=joint)

    # --- a subscription that moves or is replaced ----------------------------------------------

    def adopt_default(self, times: tuple[HostTime, ...]) -> None:
        """Take over when former hosting brokers had the newest filter, which the client knows."""
        self._subscription.newest.set_former_host_times(times)
        self.confirmed = self.newest

    def inherit(
        self, confirmed: ConfirmedFilter | None, guarantees: Mapping[PubendId, StartGuarantee]
    ) -> None:
        """Take over the guarantees of a subscription that this one replaces.

        Also what the client knows of its filter, unless the client said so itself.
        """
        if self.confirmed is None:
            self.confirmed = confirmed
        for pubend, each in guarantees.items():
            imported = self.by_pubend.get(pubend, NO_GUARANTEE)
            times = earliest_times(*imported.former_host_times, *each.former_host_times)
            self.by_pubend[pubend] = each._replace(former_host_times=times)

    def inheritance(self) -> dict[PubendId, StartGuarantee]:
        """Return all guarantees, also where the subscription has started: the client may not know that."""
        started = {
            pubend: StartGuarantee(None, cursor.verification.started_by)
            for pubend, cursor in self._subscription.cursors.items()
            if cursor.verification.started_by
        }
        return {**self._of_unannounced(), **started, **self.by_pubend}

    def _of_unannounced(self) -> dict[PubendId, StartGuarantee]:
        """Return the guarantees of pubends that only an earlier incarnation has heard of."""
        before = self._previous
        if before is None:
            return {}
        guarantee = StartGuarantee(before.time, before.former_host_times)
        cursors = self._subscription.cursors
        return {each: guarantee for each in sorted(self._unannounced) if each not in cursors}

    def message(self) -> StartGuarantees | None:
        """Return what the client takes along, by the newest filter; None if it is not durable."""
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
        """Take over what is stored; the newest filter is in the table."""
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
        """Return what the client knows, if that is not the newest, and when former SHBs had it."""
        confirmed = self.confirmed
        if confirmed is None or confirmed == self.newest:
            return None, ()
        return (str(confirmed.filter), confirmed.time), confirmed.former_host_times

    def previous_record(self) -> tuple[str, VirtualTime, tuple[HostTime, ...]] | None:
        """Return what the client knew before this incarnation, while a pubend needs that."""
        before = self._previous
        if before is None or before == self.confirmed or not self._unannounced:
            return None
        return str(before.filter), before.time, before.former_host_times
