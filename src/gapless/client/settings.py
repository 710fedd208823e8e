"""What a subscription is asked for, beside its filter."""

from __future__ import annotations

from typing import Literal

from gapless.core.errors import UsageError
from gapless.core.limits import OPTION_MAX
from gapless.messages.clients import Begin, Order

__all__ = ["Acknowledge", "OnGap", "Settings"]

Acknowledge = Literal["auto", "manual"]
OnGap = Literal["raise", "report"]


class Settings:
    """What a subscription was asked for, beside its filter."""

    __slots__ = ("ack", "begin", "deadline", "durable", "expiry_s", "on_gap", "order", "prefetch")

    def __init__(
        self,
        *,
        durable: bool,
        begin: Begin,
        order: Order,
        prefetch: int,
        ack: Acknowledge,
        on_gap: OnGap,
        expiry_s: int,
        deadline: float | None,
    ) -> None:
        _check_number("prefetch", prefetch)
        _check_number("expiry_s", expiry_s)
        if ack not in {"auto", "manual"}:
            raise UsageError(f"ack is 'auto' or 'manual', not {ack!r}")
        if on_gap not in {"raise", "report"}:
            raise UsageError(f"on_gap is 'raise' or 'report', not {on_gap!r}")
        self.durable = durable
        self.begin = begin
        self.order = order
        self.prefetch = prefetch
        self.ack = ack
        self.on_gap = on_gap
        self.expiry_s = expiry_s
        self.deadline = deadline


def _check_number(name: str, value: object) -> None:
    if type(value) is not int or not 0 < value <= OPTION_MAX:
        raise UsageError(f"{name} is a whole number from 1 to {OPTION_MAX:,}, not {value!r}")
