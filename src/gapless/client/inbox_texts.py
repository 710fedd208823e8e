"""Texts of the errors with which a subscription ends."""

from __future__ import annotations

from gapless.messages.clients import Order

__all__ = ["moved", "other_order"]


def other_order(name: str, order: Order) -> str:
    """Return why a durable subscription is not opened in another order."""
    return (
        f"the durable subscription {name!r} has the order {order.name.lower()!r}, and keeps it: "
        "leave the order out, or unsubscribe and create it again"
    )


def moved(name: str) -> str:
    """Return why a subscription ends that an operator has moved."""
    return (
        f"an operator moved the subscription {name!r} to another position; "
        "subscribe again to continue from there"
    )
