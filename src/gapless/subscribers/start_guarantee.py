"""Since when a subscription is owed pubends that are younger than it, wherever it lives (R46, MV-13).

A subscription is owed of a younger pubend what came since the news of it was at the pubend's broker: by its
host's virtual time. If its client flees, the new home's news is later than that of the old one. So a client
brings along when its homes had its filter, as *moments*: host and virtual time. The pubend is asked where it
knew each of them, and the subscription begins at the first of these. That its old host is dead makes no
difference, for a beginning needs no tables, only a log.

Moments go with a filter. One that is changed is owed from its own moment on, as at one home (R47).

A virtual time alone does not say that a pubend is younger: a filter that is covered begins with its coverer,
which may be much older than the subscription. So a home names the pubends that it had heard of when its client
was told, and that have no place yet. Where it names no moments for one, that was there before: the subscription
begins there with what comes.

A home may begin on a younger pubend while its client is elsewhere. When the client comes back, the pubend is asked
about its other homes before it is told where that was: the first counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from gapless.core.ids import PubendId, ShbId, VirtualTime
from gapless.core.limits import START_GUARANTEE_PUBENDS_MAX, START_GUARANTEE_TIMES_MAX
from gapless.core.ticks import Tick
from gapless.messages.clients import HostTime, StartGuarantees
from gapless.pubend.known_hosts import KnownTimes

__all__ = [
    "NO_GUARANTEE",
    "StartGuarantee",
    "earliest_times",
    "guarantees_message",
    "invalid_reason",
]


class StartGuarantee(NamedTuple):
    """Since when a subscription is owed a pubend that it has not begun on."""

    time: VirtualTime | None
    """By the virtual time of its present host; None if the host had heard of the pubend when it came."""
    former_host_times: tuple[HostTime, ...] = ()
    """By former homes."""

    @property
    def former_hosts(self) -> set[ShbId]:
        """The former homes that the pubend is asked about."""
        return {each.host for each in self.former_host_times}

    def all_times(self, host: ShbId) -> tuple[HostTime, ...]:
        """Return its moments, with that of its present host."""
        own = () if self.time is None else (HostTime(host, self.time),)
        return earliest_times(*self.former_host_times, *own)

    def start_after(self, host: ShbId, known: Mapping[ShbId, KnownTimes]) -> Tick | None:
        """Return after which tick the pubend knew of it, by what it knew of hosts; None if it did not."""
        found = [
            next((tick for time, tick in known.get(each.host, ()) if time >= each.time), None)
            for each in self.all_times(host)
        ]
        return min((tick for tick in found if tick is not None), default=None)


NO_GUARANTEE: Final = StartGuarantee(None)
"""The pubend was there before it."""


def earliest_times(*times: HostTime) -> tuple[HostTime, ...]:
    """Return the first moment of each host, in this order; of too many the first and the last ones."""
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
    """Return what a client is told that it is owed.

    Of too many pubends only those are named that have moments, and all others have none then: they begin with what
    comes. To leave out one that was there before would be wrong: it would begin in the past, by the moments of all.
    """
    if len(by_pubend) <= START_GUARANTEE_PUBENDS_MAX:
        return StartGuarantees(default, tuple(by_pubend.items()))
    named = [(pubend, times) for pubend, times in by_pubend.items() if times]
    return StartGuarantees((), tuple(named[:START_GUARANTEE_PUBENDS_MAX]))


def invalid_reason(guarantees: StartGuarantees) -> str | None:
    """Say what is wrong with what a client brings along, if anything is."""
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
