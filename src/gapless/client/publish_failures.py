"""What became of the events of a publisher, as the text of the error at the end of its block.

An event is *not published* if it was refused or never sent. It *may be published* if it was sent and
not answered. Events that were sent have sequences, under which subscribers and readers see them.
"""

from __future__ import annotations

from collections.abc import Sequence

from gapless.client.batches import PublishBatch
from gapless.core.errors import DeadlineError, GaplessError, OutcomeUnknownError, reworded
from gapless.core.limits import SHOWN_BATCHES_MAX

__all__ = ["failure_of", "late_closing"]


def failure_of(failed: Sequence[PublishBatch]) -> GaplessError | None:
    """Return one error for all events of failed batches whose receipts were not awaited.

    It is of the kind of the first one.
    """
    if not failed:
        return None
    first = failed[0].error
    assert first is not None
    lost = [batch for batch in failed if not isinstance(batch.error, OutcomeUnknownError)]
    unknown = [batch for batch in failed if isinstance(batch.error, OutcomeUnknownError)]
    parts = []
    if lost:
        parts.append(f"{_events(_receipts(lost))} not published{_sequences(lost)}")
    if unknown:
        parts.append(f"{_events(_receipts(unknown))} may be published{_sequences(unknown)}")
    return reworded(first, f"{', '.join(parts)}: {first}")


def late_closing(left: Sequence[PublishBatch], waited: str, condition: str) -> GaplessError:
    """Return the error of a publisher that was closed with unanswered events."""
    sent = [batch for batch in left if batch.was_sent]
    unsent = sum(batch.count for batch in left if not batch.was_sent)
    closed = f"the publisher was closed {waited}"
    lost = f"{_events(unsent)} not sent and not published"
    if not sent:
        return DeadlineError(f"{closed}: {lost}: {condition}")
    count = sum(batch.count for batch in sent)
    unknown = f"{_events(count)} sent and not answered{_sequences(sent)}, which may be published"
    parts = f"{unknown}; {lost}" if unsent else unknown
    return OutcomeUnknownError(f"{closed}: {parts}: {condition}")


def _events(count: int) -> str:
    return f"{count:,} event{'' if count == 1 else 's'}"


def _receipts(batches: Sequence[PublishBatch]) -> int:
    return sum(batch.receipts for batch in batches)


def _sequences(batches: Sequence[PublishBatch]) -> str:
    """Name the sequences of batches that were sent."""
    ranges: list[tuple[int, int]] = []
    for batch in batches:
        low, high = batch.first, batch.first + batch.count - 1
        if not batch.was_sent:
            continue
        if ranges and ranges[-1][1] + 1 == low:
            ranges[-1] = (ranges[-1][0], high)
        else:
            ranges.append((low, high))
    if not ranges:
        return ""
    named = [str(low) if low == high else f"{low} to {high}" for low, high in ranges]
    more = ", …" if len(named) > SHOWN_BATCHES_MAX else ""
    return f" (sequences {', '.join(named[:SHOWN_BATCHES_MAX])}{more})"
