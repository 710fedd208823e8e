"""Planted bugs of forced moves of subscriptions (:mod:`gapless.mobility`)."""

from __future__ import annotations

from typing import Any, Final
from weakref import WeakKeyDictionary

from gapless.messages.clients import StartPoint, Subscribe, Unsubscribe
from gapless.messages.mobility import FindStatus, Superseded
from gapless.mobility import ForcedMoves, HostingBrokers, Lookups, resume
from gapless.mobility.find import FindResult
from gapless.subscribers.client_calls import SubscriberCalls
from gapless.subscribers.cursor_state import Started
from gapless.subscribers.registry import Registry
from gapless.subscribers.subscription import HostedSubscription
from gapless_lab.sim.planted_bugs import PlantedBug, replaced

__all__ = ["FAILOVER_BUGS"]


def _from_the_client_position(call: Subscribe) -> StartPoint:
    return call.start


def _imports_no_past_filters(_: ForcedMoves, made: HostedSubscription, call: Subscribe) -> None:
    if call.hosting is not None:
        positioned = dict(call.start.position)
        acked = {each: tick for each, tick in call.acked if each in positioned}
        made.import_state(call.seek_count, [], acked)


def _acknowledges_silence(original: Any) -> Any:
    def save(self: Registry) -> None:
        for subscription in self.subscriptions.values():
            for cursor in subscription.cursors.values():
                is_quiet = cursor.is_live and cursor.last_sent <= cursor.start.acked
                if is_quiet and isinstance(cursor.start, Started):
                    cursor.raise_acked(cursor.sent_up_to)
        original(self)

    return save


def _keeps_moved_subscription(
    _: HostingBrokers, subscription: HostedSubscription, move: Superseded
) -> None:
    del subscription, move


def _takes_silence_for_none(_: Lookups, name: str, result: FindResult, *, anyway: bool) -> bool:
    del name, anyway
    return result.status in {FindStatus.NONE, FindStatus.UNKNOWN, FindStatus.FOUND}


def _ends_here(calls: SubscriberCalls, client: str, call: Unsubscribe) -> None:
    calls._end(client, call)  # noqa: SLF001


_handed_over: Final[WeakKeyDictionary[Any, dict[str, HostedSubscription]]] = WeakKeyDictionary()
"""By registry: the subscriptions that it has handed over."""


def _remembers_what_it_handed_over(original: Any) -> Any:
    def let_go(self: Any, subscription: HostedSubscription, move: Superseded) -> None:
        _handed_over.setdefault(self._registry, {})[subscription.name] = subscription
        original(self, subscription, move)

    return let_go


def _names_what_it_handed_over(original: Any) -> Any:
    def durable_named(self: Registry, name: str) -> HostedSubscription | None:
        return original(self, name) or _handed_over.get(self, {}).get(name)

    return durable_named


FAILOVER_BUGS: Final = (
    PlantedBug(
        "takes a silent broker for one that does not host",
        "a search with a silent broker ends as if no broker hosted the subscription (MV-15)",
        ((Lookups, "_may_execute", replaced(_takes_silence_for_none)),),
    ),
    PlantedBug(
        "redirects to a broker that has handed the subscription over",
        "a broker that has handed a subscription over answers that it hosts it (MV-15)",
        (
            (HostingBrokers, "_let_go", _remembers_what_it_handed_over),
            (Registry, "durable_named", _names_what_it_handed_over),
        ),
    ),
    PlantedBug(
        "confirms the end of a subscription that another broker hosts",
        "a broker that hosts no subscription of a name confirms its end without a search (MV-15)",
        ((SubscriberCalls, "_unsubscribe", replaced(_ends_here)),),
    ),
    PlantedBug(
        "keeps a subscription that has moved",
        "a broker keeps a subscription that has moved to another broker (MV-14)",
        ((HostingBrokers, "_let_go", replaced(_keeps_moved_subscription)),),
    ),
    PlantedBug(
        "treats received ticks as acknowledged",
        "the new hosting broker treats the received ticks of a client as acknowledged (MV-13, R50)",
        ((resume, "_retained_from", replaced(_from_the_client_position)),),
    ),
    PlantedBug(
        "leaves past filters behind in a failover",
        "the new hosting broker applies the last filter to ticks of a past filter (R47)",
        ((ForcedMoves, "adopt_resume_state", replaced(_imports_no_past_filters)),),
    ),
    PlantedBug(
        "acknowledges silence before the client knows it",
        "a hosting broker acknowledges silence before its client knows of it (MV-13)",
        ((Registry, "save_acknowledgements", _acknowledges_silence),),
    ),
)
"""Each must be detected within 1,000 seeds. The scenarios of ``tests/mobility`` test three more
rules: only retained ticks are claimed, every attempt counts, and an older claim does not. In the
swarm other rules compensate for their absence. That start guarantees move along needs many pubends
created while clients fail over: ``tests/lab/sim/test_invariants.py`` makes such runs.
"""
