"""The options of a subscription, beside its filter."""

from __future__ import annotations

from typing import Literal

from gapless.core.errors import UsageError
from gapless.core.limits import OPTION_MAX
from gapless.messages.clients import Order, StartPoint

__all__ = ["Acknowledge", "OnGap", "SubscriptionOptions"]

Acknowledge = Literal["auto", "manual"]
OnGap = Literal["raise", "report"]


class SubscriptionOptions:
    """The options of a subscription, beside its filter."""

    __slots__ = ("ack", "deadline_s", "durable", "expiry_s", "on_gap", "order", "prefetch", "start")

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
    ) -> None:
        _check_number("prefetch", prefetch)
        _check_number("expiry_s", expiry_s)
        if ack not in {"auto", "manual"}:
            raise UsageError(f"ack is 'auto' or 'manual', not {ack!r}")
        if on_gap not in {"raise", "report"}:
            raise UsageError(f"on_gap is 'raise' or 'report', not {on_gap!r}")
        self.durable = durable
        self.start = start
        self.order = order
        self.prefetch = prefetch
        self.ack = ack
        self.on_gap = on_gap
        self.expiry_s = expiry_s
        self.deadline_s = deadline_s


def _check_number(name: str, value: object) -> None:
    if type(value) is not int or not 0 < value <= OPTION_MAX:
        raise UsageError(f"{name} is a whole number from 1 to {OPTION_MAX:,}, not {value!r}")
