"""Flights that go wrong: planted bugs of subscriptions that move by force (:mod:`gapless.mobility`)."""

from __future__ import annotations

from typing import Any, Final

from gapless.messages.clients import Begin, Subscribe
from gapless.messages.mobility import Superseded
from gapless.mobility import Homes
from gapless.subscribers import client_calls as calls
from gapless.subscribers.client_calls import Calls
from gapless.subscribers.reporter import Reporting
from gapless.subscribers.subscription import Subscription
from gapless_lab.sim.planted_bugs import Plant, replaced

__all__ = ["FLIGHTS"]


def _where_its_client_is(call: Subscribe) -> Begin:
    return call.begin


def _brings_no_filters(_: Calls, made: Subscription, call: Subscribe) -> None:
    made.seeks = call.seeks


def _acknowledges_silence(original: Any) -> Any:
    def save(self: Reporting) -> None:
        for subscription in self._host.subscriptions.values():
            for strand in subscription.strands.values():
                if strand.is_live and strand.last_told <= strand.acked:
                    strand.acked = max(strand.acked, strand.told)
        original(self)

    return save


def _keeps_what_has_moved(_: Homes, subscription: Subscription, move: Superseded) -> None:
    del subscription, move


FLIGHTS: Final = (
    Plant(
        "an old home stays",
        "a broker keeps a subscription that lives elsewhere since a move (MV-14)",
        ((Homes, "_let_go", replaced(_keeps_what_has_moved)),),
    ),
    Plant(
        "a flight forgets what is owed",
        "what a client has seen counts as acknowledged where it flees to (MV-13, R50)",
        ((calls, "_kept_from", replaced(_where_its_client_is)),),
    ),
    Plant(
        "filters stay behind",
        "where a client flees to, its last filter governs what an earlier one did (R47)",
        ((Calls, "_bring", replaced(_brings_no_filters)),),
    ),
    Plant(
        "silence that only its home knows",
        "a home lets a log go where nothing was wanted, before its client knows that (MV-13)",
        ((Reporting, "save_acknowledgements", _acknowledges_silence),),
    ),
)
"""Each is to be caught within 1,000 seeds. Three more rules, that only what is kept is claimed, that every
attempt counts, and that an older claim does not, are shown by the scenarios of ``tests/mobility``: in the swarm
others make up for them. That since when it is owed younger pubends moves along takes many of these while clients
flee: such runs are made in ``tests/lab/sim/test_invariants.py``."""
