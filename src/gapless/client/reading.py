"""Reads of a range of a pubend's log, whatever broker is its PHB."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Final

from gapless.client.event import Event, EventRun
from gapless.client.link import ReconnectingLink
from gapless.core.errors import DeadlineError, GapError, UnavailableError
from gapless.core.ids import PubendId
from gapless.core.ticks import Tick
from gapless.messages.reading import ReadLog, ReadPart
from gapless.messages.streams import ReadForm
from gapless.packed.pick import unpack

__all__ = ["read_log"]

FOREVER: Final = 2**62
"""Above every tick."""

_PART_BYTES: Final = 1_048_576
"""How many bytes of the log a part may cover."""

PAUSE_S: Final = 0.05
"""The wait between two attempts when the PHB has no answer yet."""


async def read_log(
    link: ReconnectingLink,
    pubend: PubendId,
    filter: str,
    low: Tick | None,
    high: Tick | None,
    deadline_s: float | None,
) -> AsyncIterator[Event]:
    """Yield the events that match between two ticks, up to the end of the log when the read starts.

    The deadline applies to each part. If ``low`` is given, the log must be complete from there: a
    released range raises GapError. Without it, the read starts with the oldest event of the log.
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
    """Request a part, again while the pubend is unreachable, until the deadline."""
    refused = ""
    try:
        async with asyncio.timeout(deadline_s):
            while True:
                try:
                    answer = await link.call(request, None, changes=False)
                except UnavailableError as error:
                    refused = str(error)
                    await asyncio.sleep(PAUSE_S)
                else:
                    part: ReadPart = ReconnectingLink.expect(answer, ReadPart)
                    return part
    except TimeoutError:
        raise DeadlineError(
            f"the log of {request.pubend} was not read within {deadline_s:g} s: {link.condition}"
            + (f" and answers: {refused}" if refused else "")
        ) from None
