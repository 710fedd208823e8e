"""The options of a subscription, beside its filter."""

from __future__ import annotations

from typing import Literal

from gapless.client.arguments import check_whole
from gapless.core.errors import UsageError
from gapless.messages.clients import Order, StartPoint

__all__ = ["Acknowledge", "OnGap", "SubscriptionOptions"]

Acknowledge = Literal["auto", "manual"]
OnGap = Literal["raise", "report"]


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
        order: Order,
        prefetch: int,
        ack: Acknowledge,
        on_gap: OnGap,
        expiry_s: int,
        deadline_s: float | None,
        take_over: bool = True,
        create: bool = False,
    ) -> None:
        if ack not in ("auto", "manual"):
            raise UsageError(f"ack is 'auto' or 'manual', not {ack!r}")
        if on_gap not in ("raise", "report"):
            raise UsageError(f"on_gap is 'raise' or 'report', not {on_gap!r}")
        if create and not durable:
            raise UsageError("create is for a durable subscription; give it durable='name'")
        self.durable = durable
        self.start = start
        self.order = order
        self.prefetch = check_whole("prefetch", prefetch, 1)
        self.ack = ack
        self.on_gap = on_gap
        self.expiry_s = check_whole("expiry_s", expiry_s, 1)
        self.deadline_s = deadline_s
        self.take_over = take_over
        """Whether opening ends the subscription of another client that has the name."""
        self.create = create
        """Whether the name is created although a broker that may host it does not answer."""
