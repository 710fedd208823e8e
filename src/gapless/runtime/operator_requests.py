"""Requests that need an operator token where brokers require tokens.

The runtime refuses them before the machine knows of them. Where no token is required everybody is
an operator.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gapless.messages.clients import RefusalCause, Refused
from gapless.messages.closing import ClosePubend
from gapless.messages.operating import RemoveDurable, RetireBroker, SeekDurable, SetDurableFilter
from gapless.messages.plans import AbortPlan, ApplyPlan
from gapless.messages.reshape import OpRequest, ReadmitBroker, TakeOverCell
from gapless.runtime.authentication import ClientIdentity

__all__ = ["OPERATOR_REQUESTS", "refusal_of"]

OPERATOR_REQUESTS: Final[Mapping[type, str]] = {
    AbortPlan: "stop plans",
    ApplyPlan: "change the tree",
    OpRequest: "change the tree",
    ReadmitBroker: "readmit brokers",
    ClosePubend: "close pubends of other clients",
    RemoveDurable: "end durable subscriptions of other clients",
    RetireBroker: "retire brokers",
    SeekDurable: "move durable subscriptions without their clients",
    SetDurableFilter: "change the filters of durable subscriptions without their clients",
    TakeOverCell: "let brokers take over cells",
}
"""Each request that needs an operator token, and what an operator does by it."""


def refusal_of(request: Any, identity: ClientIdentity) -> Refused | None:
    """Return the refusal of a request that needs an operator token, or None."""
    if identity.is_operator:
        return None
    what = OPERATOR_REQUESTS.get(type(request))
    if what is None:
        return None
    reason = (
        f"only operators may {what}, and the token of {identity.principal} is no operator token: "
        "use one that was made with `gapless token new PRINCIPAL --operator`"
    )
    return Refused(request.request, reason, RefusalCause.NOT_AUTHORISED)
