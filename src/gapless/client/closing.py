"""Closing a pubend, wherever it is (RS-32, RS-33)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final, NamedTuple

from gapless.client.link import ReconnectingLink, shown_deadline
from gapless.client.session_links import SessionLinks
from gapless.core.errors import DeadlineError, WrongBrokerError
from gapless.core.ids import PubendId
from gapless.core.limits import REDIRECTS_MAX
from gapless.messages.closing import (
    CloseMode,
    ClosePubend,
    ClosePubendReply,
    ClosingState,
)

__all__ = ["PubendClosing", "close_pubend"]

PAUSE_S: Final = 0.5
"""The pause before the state of a pubend is requested again."""


class PubendClosing(NamedTuple):
    """The state of a pubend that is being closed."""

    pubend: str
    is_closed: bool
    """Whether nothing is left of it; else it is sealed."""
    last: int
    """Its last tick; 0 under best effort."""
    waits_for: tuple[str, ...]
    """For whom its log is kept, as texts."""

    @classmethod
    def of(cls, reply: ClosePubendReply) -> PubendClosing:
        """Return the state that a broker has replied."""
        is_closed = reply.state is ClosingState.CLOSED
        return cls(str(reply.pubend), is_closed, reply.last, tuple(_waits_for(reply)))


def _waits_for(reply: ClosePubendReply) -> list[str]:
    """Return a text for each broker and subscription that needs the log, and for the retention."""
    found = [
        f"the broker {each.shb.broker} for {_kind(durable=each.durable)}, above the tick "
        f"{each.ack_floor}" + (", not heard of now" if each.inactive else "")
        for each in reply.members
    ]
    found += [
        f"the subscription {each.subscription.rpartition('/')[0]} at the broker {each.shb.broker}, "
        f"above the tick {each.tick}"
        for each in reply.log_holds
    ]
    omitted = reply.members_omitted + reply.log_holds_omitted
    if omitted:
        found.append(f"{omitted:,} more")
    if reply.joining:
        found.append("brokers that may not have heard of the pubend yet")
    if reply.retained_until is not None:
        found.append(f"the retention, until {_time(reply.retained_until)}")
    if reply.gives_up_at is not None and found:
        found.append(f"at most until {_time(reply.gives_up_at)}")
    return found


def _kind(*, durable: bool) -> str:
    return "durable subscriptions" if durable else "its subscriptions"


def _time(clock: int) -> str:
    try:
        return f"{datetime.fromtimestamp(clock / 1_000_000, UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (OverflowError, ValueError, OSError):
        return f"the clock {clock}"


async def close_pubend(
    links: SessionLinks,
    pubend: PubendId,
    mode: CloseMode,
    deadline_s: float | None,
    *,
    wait: bool,
    on_progress: Callable[[PubendClosing], None] | None,
) -> PubendClosing:
    """Close a pubend at its broker, which other brokers name; perhaps wait until it is closed."""
    now = asyncio.get_running_loop().time
    end = None if deadline_s is None else now() + deadline_s
    link, redirects = links.main, 0
    while True:
        left = None if end is None else max(0.0, end - now())
        try:
            answer = await link.call(ClosePubend(0, pubend, mode), left)
        except WrongBrokerError as error:
            redirects += 1
            if redirects > REDIRECTS_MAX:
                raise
            link = links.to_broker(error.broker, error.addresses)
            continue
        closing = PubendClosing.of(ReconnectingLink.expect(answer, ClosePubendReply))
        if closing.is_closed or not wait:
            return closing
        if on_progress is not None:
            on_progress(closing)
        if end is not None and now() + PAUSE_S >= end:
            raise DeadlineError(
                f"the pubend {pubend} is sealed and was not closed within "
                f"{shown_deadline(deadline_s)} s: it waits for {'; '.join(closing.waits_for)}"
            )
        await asyncio.sleep(PAUSE_S)
