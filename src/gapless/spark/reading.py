"""Reads one range of a log in a task, part by part, from the last tick received.

The next part is requested before the current one is yielded, so that the broker reads while Spark
processes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from time import monotonic, sleep
from typing import Final

from gapless.client.credentials import Credentials
from gapless.client.position import pubend_id
from gapless.core.errors import DeadlineError
from gapless.core.ids import PubendId
from gapless.core.ticks import Tick
from gapless.messages.reading import ReadLog
from gapless.messages.streams import ReadForm
from gapless.packed.pick import pack
from gapless.packed.scan import PackedEvents
from gapless.spark.options import OnRelease
from gapless.spark.planning import Range, note_skipped, released_error
from gapless.spark.read_connection import ReadConnection

__all__ = ["read_range"]

READ_BYTES: Final = 4_194_304
"""How many bytes of a log a reply may cover: enough that requests cost little, and little to keep
in memory. By default a broker sends no more (``read_bytes_max``)."""

_PAUSE_S: Final = 0.1


def read_range(
    part: Range,
    filter_text: str,
    on_release: OnRelease,
    deadline_s: float,
    credentials: Credentials = Credentials(),  # noqa: B008 - it does not change
) -> Iterator[Sequence[PackedEvents]]:
    """Yield the matching packed events of a range, in order, as they come.

    The deadline applies to each reply: a broker that is unreachable for less than it is waited for.
    """
    pubend = pubend_id(part.pubend)
    line = ReadConnection(part.where, deadline_s, credentials)
    try:
        low, stalled = part.low, None
        line.request(_request(pubend, filter_text, low, part.high))
        while low <= part.high:
            answer = line.answer()
            if answer.released >= low:
                released = min(answer.released, part.high)
                if on_release == "fail":
                    raise released_error(part.pubend, low, released)
                note_skipped(part.pubend, low, released)
            if answer.done < low:
                stalled = stalled or monotonic()
                _wait(part, low, stalled, deadline_s)
            else:
                low, stalled = answer.done + 1, None
            if low <= part.high:
                line.request(_request(pubend, filter_text, low, part.high))
            if answer.rows:
                yield answer.rows
            elif answer.publications:
                yield [pack(answer.publications)]
    finally:
        line.close()


def _request(pubend: PubendId, filter_text: str, low: Tick, high: Tick) -> ReadLog:
    return ReadLog(0, pubend, filter_text, low, high, READ_BYTES, ReadForm.ROWS)


def _wait(part: Range, low: Tick, stalled: float, deadline_s: float) -> None:
    """Wait, until the deadline, for a broker whose log is behind the range."""
    if monotonic() - stalled > deadline_s:
        raise DeadlineError(f"the log of {part.pubend} did not reach {low} in {deadline_s:g} s")
    sleep(_PAUSE_S)
