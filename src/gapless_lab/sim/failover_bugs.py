"""Flights that go wrong: planted bugs of subscriptions that move by force (:mod:`gapless.mobility`)."""

from __future__ import annotations

from typing import Any, Final

from gapless.messages.clients import StartPoint, Subscribe
from gapless.messages.mobility import Superseded
from gapless.mobility import ForcedMoves, HostingBrokers, resume
from gapless.subscribers.cursor_state import Started
from gapless.subscribers.registry import Registry
from gapless.subscribers.subscription import HostedSubscription
from gapless_lab.sim.planted_bugs import PlantedBug, replaced

__all__ = ["FAILOVER_BUGS"]


def _where_its_client_is(call: Subscribe) -> StartPoint:
    return call.start


def _brings_no_filters(_: ForcedMoves, made: HostedSubscription, call: Subscribe) -> None:
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


def _keeps_what_has_moved(
    _: HostingBrokers, subscription: HostedSubscription, move: Superseded
) -> None:
    del subscription, move


FAILOVER_BUGS: Final = (
    PlantedBug(
        "a former host keeps it",
        "a broker keeps a subscription that lives elsewhere since a move (MV-14)",
        ((HostingBrokers, "_let_go", replaced(_keeps_what_has_moved)),),
    ),
    PlantedBug(
        "a failover forgets what must come",
        "what a client has seen counts as acknowledged where it flees to (MV-13, R50)",
        ((resume, "_retained_from", replaced(_where_its_client_is)),),
    ),
    PlantedBug(
        "filters stay behind",
        "where a client flees to, its last filter governs what an earlier one did (R47)",
        ((ForcedMoves, "adopt_resume_state", replaced(_brings_no_filters)),),
    ),
    PlantedBug(
        "silence that only its host knows",
        "a home lets a log go where nothing was wanted, before its client knows that (MV-13)",
        ((Registry, "save_acknowledgements", _acknowledges_silence),),
    ),
)
"""Each is to be caught within 1,000 seeds. Three more rules, that only what is kept is claimed, that every
attempt counts, and that an older claim does not, are shown by the scenarios of ``tests/mobility``: in the swarm
others make up for them. That since when it is owed younger pubends moves along takes many of these while clients
flee: such runs are made in ``tests/lab/sim/test_invariants.py``."""
