"""The end of a durable subscription by an operator while its broker is stopped (R50).

Its record is deleted, with its log holds at the pubends of this broker. That is the state of a
broker that ended the subscription and crashed in the next moment, so its next start does the rest:
the SHB leaves the pubends that no subscription needs (R55), its reports pass the ticks that only
this subscription needed (R52), and the PHBs of other brokers end the log holds that nobody
refreshes (R49).
"""

from __future__ import annotations

from collections.abc import Collection

from gapless.core.errors import UsageError
from gapless.messages.records import DeleteRecord, StorageChange, SubscriptionRecord
from gapless.messages.stored import StoredState

__all__ = ["removal"]


def removal(
    state: StoredState, name: str, corrupt: Collection[str] = ()
) -> tuple[StorageChange, ...]:
    """Return the changes that end a durable subscription; UsageError if there is none.

    Its record may be one of the ``corrupt`` ones.
    """
    known = sorted({*(each.subscription for each in state.subscriptions), *corrupt})
    if name not in known:
        others = ", ".join(known) or "none"
        raise UsageError(f"there is no durable subscription {name!r} here; there are: {others}")
    own_holds = [
        hold
        for stored in state.pubends
        for hold in stored.log_holds
        if hold.log_hold.shb.broker == stored.record.properties.broker
        and hold.log_hold.subscription.rpartition("/")[0] == name
    ]
    return (
        DeleteRecord(SubscriptionRecord.key_of(name)),
        *(DeleteRecord(hold.key) for hold in own_holds),
    )
