"""Reading a range of a pubend's log, wherever the pubend is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Final

from gapless.client.event import Event, EventRun
from gapless.client.link import ReconnectingLink
from gapless.core.errors import DeadlineError, GapError, UnavailableError
from gapless.core.ids import PubendId
from gapless.core.ticks import Tick
from gapless.messages.clients import ReadLog, ReadPart
from gapless.messages.streams import ReadForm
from gapless.packed.pick import unpack

__all__ = ["read_log"]

FOREVER: Final = 2**62
"""Above every tick."""

_PART_BYTES: Final = 1_048_576
"""What a part may cover of the log."""

PAUSE_S: Final = 0.05
"""Between two tries when the pubend's broker could not say anything yet."""


async def read_log(
    link: ReconnectingLink,
    pubend: PubendId,
    filter: str,
    low: Tick | None,
    high: Tick | None,
    deadline_s: float | None,
) -> AsyncIterator[Event]:
    """Give what matches between two ticks, as far as the log goes when the reading begins.

    The deadline is for each part. From a ``low`` that is given the log must be there: what it has
    lost is a GapError. Without one, the reading begins with the oldest that there is.
    """
    start, end = 1 if low is None else max(1, low), FOREVER if high is None else high
    run = EventRun(pubend, {}, is_logged=True)
    is_first = True
    while start <= end:
        request = ReadLog(0, pubend, filter, start, end, _PART_BYTES, ReadForm.ROWS)
        part = await _part(link, request, deadline_s)
        if part.released >= start and (low is not None or not is_first):
            raise GapError(str(pubend), start, min(part.released, end))
        for publication in part.publications or unpack(part.rows):
            yield Event(publication, run)
        if is_first:
            end = min(end, part.top)
        is_first = False
        if part.done < start <= end:
            await asyncio.sleep(PAUSE_S)
        start = max(start, part.done + 1)


async def _part(link: ReconnectingLink, request: ReadLog, deadline_s: float | None) -> ReadPart:
    """Ask for a part, again if the pubend cannot be reached now, until the deadline."""
    try:
        async with asyncio.timeout(deadline_s):
            while True:
                try:
                    answer = await link.call(request, None, changes=False)
                except UnavailableError:
                    await asyncio.sleep(PAUSE_S)
                else:
                    part: ReadPart = ReconnectingLink.expect(answer, ReadPart)
                    return part
    except TimeoutError:
        raise DeadlineError(
            f"the log of {request.pubend} did not answer within {deadline_s:g} s"
        ) from None
