"""The options of a subscription, beside its filter."""

from __future__ import annotations

from typing import Final, Literal

from gapless.client.arguments import check_choice, check_flag, check_whole
from gapless.core.errors import UsageError
from gapless.messages.clients import Order, StartPoint

__all__ = ["ORDERS", "Acknowledge", "OnGap", "SubscriptionOptions"]

Acknowledge = Literal["auto", "manual"]
OnGap = Literal["raise", "report"]

_ACKNOWLEDGE: Final[dict[str, Acknowledge]] = {"auto": "auto", "manual": "manual"}
_ON_GAP: Final[dict[str, OnGap]] = {"raise": "raise", "report": "report"}
ORDERS: Final = {"publisher": Order.PUBLISHER, "total": Order.TOTAL}
"""The orders of delivery, by the words of programs."""


class SubscriptionOptions:
    """The options of a subscription, beside its filter."""

    __slots__ = (
        "ack",
        "create",
        "deadline_s",
        "durable",
        "expiry_s",
        "on_gap",
        "order",
        "prefetch",
        "start",
        "take_over",
    )

    def __init__(
        self,
        *,
        durable: bool,
        start: StartPoint,
        order: Order | None,
        prefetch: int,
        ack: Acknowledge,
        on_gap: OnGap,
        expiry_s: int,
        deadline_s: float | None,
        take_over: bool = True,
        create: bool = False,
    ) -> None:
        self.durable = durable
        self.start = start
        self.order = order
        """None: a durable subscription continues with the order that it has."""
        self.prefetch = check_whole("prefetch", prefetch, 1)
        self.ack = check_choice("ack", ack, _ACKNOWLEDGE)
        self.on_gap = check_choice("on_gap", on_gap, _ON_GAP)
        self.expiry_s = check_whole("expiry_s", expiry_s, 1)
        self.deadline_s = deadline_s
        self.take_over = check_flag("take_over", take_over)
        """Whether opening ends the subscription of another client that has the name."""
        self.create = check_flag("create", create)
        """Whether the name is created although a broker that may host it does not answer."""
        if self.create and not durable:
            raise UsageError("create is for a durable subscription; give it durable='name'")
