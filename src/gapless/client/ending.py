"""Ending a durable subscription by its name, wherever it is hosted (MV-15).

A name may have several subscriptions, if one was created while the hosting broker of the other did
not answer. All of them end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from gapless.client.link import ReconnectingLink
from gapless.messages.clients import Unsubscribe, Unsubscribed
from gapless.messages.operating import AllDurableList, ListAllDurable

if TYPE_CHECKING:
    from gapless.client.session_operations import SessionOperations

__all__ = ["end_durable"]


async def end_durable(session: SessionOperations, name: str, deadline_s: float | None) -> None:
    """End all durable subscriptions of a name; do nothing if there is none."""
    left_s = _countdown(deadline_s)
    message = Unsubscribe(0, name, durable=True)
    answer = await session.request_at_host(name, message, deadline_s=left_s())
    if answer is None:
        return
    ReconnectingLink.expect(answer, Unsubscribed)
    request = ListAllDurable(0, (name, ""))
    others = await session.request(request, deadline_s=left_s(), changes=False)
    for each in ReconnectingLink.expect(others, AllDurableList).entries:
        if each.name == name:
            await session.request_at_broker(
                each.host.broker,
                each.host.addresses,
                Unsubscribe(0, name),
                deadline_s=left_s(),
            )


def _countdown(deadline_s: float | None) -> Callable[[], float | None]:
    """Return a function that returns the seconds that are left."""
    now = asyncio.get_running_loop().time
    end = None if deadline_s is None else now() + deadline_s
    return lambda: None if end is None else max(0.0, end - now())
