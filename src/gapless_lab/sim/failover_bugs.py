"""Flights that go wrong: planted bugs of subscriptions that move by force (:mod:`gapless.mobility`)."""

from __future__ import annotations

from typing import Any, Final

from gapless.messages.clients import StartPoint, Subscribe
from gapless.messages.mobility import Superseded
from gapless.mobility import HostingBrokers
from gapless.subscribers import client_calls as calls
from gapless.subscribers.client_calls import SubscriberCalls
from gapless.subscribers.reporter import AckReporter
from gapless.subscribers.subscription import HostedSubscription
from gapless_lab.sim.planted_bugs import PlantedBug, replaced

__all__ = ["FAILOVER_BUGS"]


def _where_its_client_is(call: Subscribe) -> StartPoint:
    return call.start


def _brings_no_filters(_: SubscriberCalls, made: HostedSubscription, call: Subscribe) -> None:
    made.seek_count = call.seek_count


def _acknowledges_silence(original: Any) -> Any:
    def save(self: AckReporter) -> None:
        for subscription in self._host.subscriptions.values():
            for cursor in subscription.cursors.values():
                if cursor.is_live and cursor.last_sent <= cursor.acked:
                    cursor.acked = max(cursor.acked, cursor.sent_up_to)
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
        ((calls, "_retained_from", replaced(_where_its_client_is)),),
    ),
    PlantedBug(
        "filters stay behind",
        "where a client flees to, its last filter governs what an earlier one did (R47)",
        ((SubscriberCalls, "_adopt_resume_state", replaced(_brings_no_filters)),),
    ),
    PlantedBug(
        "silence that only its host knows",
        "a home lets a log go where nothing was wanted, before its client knows that (MV-13)",
        ((AckReporter, "save_acknowledgements", _acknowledges_silence),),
    ),
)
"""Each is to be caught within 1,000 seeds. Three more rules, that only what is kept is claimed, that every
attempt counts, and that an older claim does not, are shown by the scenarios of ``tests/mobility``: in the swarm
others make up for them. That since when it is owed younger pubends moves along takes many of these while clients
flee: such runs are made in ``tests/lab/sim/test_invariants.py``."""
