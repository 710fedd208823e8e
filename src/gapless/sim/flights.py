"""Flights that go wrong: planted bugs of subscriptions that move by force (:mod:`gapless.mobility`)."""

from __future__ import annotations

from typing import Any, Final

from gapless.delivery.subscribers import calls
from gapless.delivery.subscribers.calls import Calls
from gapless.delivery.subscribers.reporting import Reporting
from gapless.delivery.subscribers.subscription import Subscription
from gapless.messages.clients import Begin, Home, Subscribe
from gapless.mobility.homes import Homes
from gapless.sim.plants import Plant, constant, replaced

__all__ = ["FLIGHTS"]


def _where_its_client_is(call: Subscribe) -> Begin:
    return call.begin


def _brings_no_filters(_: Calls, made: Subscription, call: Subscribe) -> None:
    made.seeks = call.seeks


def _as_it_was(home: Home) -> Home:
    return home


def _acknowledges_silence(original: Any) -> Any:
    def save(self: Reporting) -> None:
        for subscription in self._host.subscriptions.values():
            for strand in subscription.strands.values():
                if strand.is_live and strand.last_told <= strand.acked:
                    strand.acked = max(strand.acked, strand.told)
        original(self)

    return save


FLIGHTS: Final = (
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
        "an abandoned flight wins",
        "a broker that was asked and left takes the subscription from its home later (MV-16)",
        ((Home, "after_a_flight", replaced(_as_it_was)),),
    ),
    Plant(
        "a home claims what it does not keep",
        "an old home lets logs go before the new one holds them (MV-13, run 20)",
        ((Homes, "_is_kept", constant(True)),),
    ),
    Plant(
        "silence that only its home knows",
        "a home lets a log go where nothing was wanted, before its client knows that (MV-13)",
        ((Reporting, "save_acknowledgements", _acknowledges_silence),),
    ),
)
"""Each is to be caught within 1,000 seeds."""
