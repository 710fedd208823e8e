"""The publishers of one pubend: their sessions and published sequences (R27, R28).

Theory of operation. A publisher numbers its events in ascending order. Opening it starts a session
and fences older ones. A batch is published whole or refused whole, so every sequence is in one of
three states:

- *published*: a repetition is answered with the tick of its first copy;
- *skipped*: a higher sequence was published without it. Within a session requests arrive in order,
  and a client that reconnects sends unanswered events before new ones (R28). So a client that skips
  sequences in a batch has given them up, as after a refusal;
- *new*: above all published sequences.

The record stores the ticks of the last batches. Older ones may be in the log, where :mod:`.repeats`
looks them up. A sequence without a tick in either place was skipped or is released. It is refused,
never acknowledged: a client that sends 9 before its unanswered 8 gets a refusal for 8 (A21). A
client that has no more batches unanswered than the window never gets one. The last sequence and the
ticks are on disk in the transaction of the log row, so a crash changes nothing of this.

A publisher that was not used for long is forgotten. Events that it repeats after that are new.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from gapless.content.filter import EVERYTHING, Filter
from gapless.core.ids import PubendId
from gapless.core.limits import PUBLISH_EVENTS_MAX
from gapless.core.ticks import Tick
from gapless.messages.records import PublisherRecord
from gapless.messages.streams import Events, Publication

__all__ = [
    "ClosedRefusalError",
    "PublishRefusedError",
    "Publishers",
    "last_logged",
    "refuse_crowds",
    "refuse_unadvertised",
    "with_ticks",
]

FIRST_SEQUENCE: Final = 1
"""The lowest sequence; a last sequence of 0 means that nothing was published."""


class PublishRefusedError(Exception):
    """A batch cannot be published; nothing of it was published."""


class ClosedRefusalError(PublishRefusedError):
    """The pubend is closed and accepts nothing any more (RS-32)."""


def last_logged(publishers: Iterable[PublisherRecord]) -> Tick:
    """Return the last tick that the records of publishers contain, 0 without records.

    Every append writes its last tick into the record of its publisher, in one transaction. When a
    record is deleted, the ceiling is raised to its last tick. So nothing in the log is above both.
    """
    ends = [each.window[-1] for each in publishers if each.window]
    return max((tick + count - 1 for _, tick, count in ends), default=0)


def with_ticks(
    tick: Tick, publisher: str, sequence: int, events: Events
) -> tuple[Publication, ...]:
    """Return events as publications, from a tick and a sequence on."""
    found = []
    for attributes, payload in events:
        found.append(Publication(tick, publisher, sequence, attributes, payload))
        tick, sequence = tick + 1, sequence + 1
    return tuple(found)


def refuse_crowds(events: Events) -> None:
    """Refuse a batch of too many events, which may be empty: their publications are not."""
    if len(events) > PUBLISH_EVENTS_MAX:
        raise PublishRefusedError(
            f"{len(events):,} events are more than one batch may have (limit PUBLISH_EVENTS_MAX = "
            f"{PUBLISH_EVENTS_MAX:,}); send smaller batches"
        )


def refuse_unadvertised(advertised: Filter, events: Events) -> None:
    """Refuse a batch with an event that the pubend's advertisement does not cover (A22)."""
    if advertised == EVERYTHING:
        return
    for attributes, _ in events:
        if not advertised.matches(attributes):
            raise PublishRefusedError(
                f"an event does not match the pubend's advertisement {advertised}"
            )


class Publishers:
    """The publishers of a pubend, as they are after all pending writes."""

    def __init__(
        self, pubend: PubendId, window: int, records: Iterable[PublisherRecord] = ()
    ) -> None:
        self._pubend = pubend
        self._window = window
        self._records = {each.publisher: each for each in records}

    def __len__(self) -> int:
        """Return the number of known publishers."""
        return len(self._records)

    def __iter__(self) -> Iterator[PublisherRecord]:
        """Return the records of all known publishers."""
        return iter(self._records.values())

    @property
    def logged(self) -> tuple[Tick, int]:
        """The last tick that was logged, and the bytes ever logged up to it."""
        records = self._records.values()
        return last_logged(records), max((each.logged_bytes for each in records), default=0)

    @property
    def logged_events(self) -> int:
        """The publications ever logged, as far as a publisher that is still known logged them."""
        return max((each.logged_events for each in self._records.values()), default=0)

    def open(self, publisher: str, clock: int, session: int | None = None) -> PublisherRecord:
        """Start a session of a publisher, by default with the next number; fence older ones."""
        held = self._records.get(publisher)
        if held is None:
            # the publisher may have been forgotten: the clock is above its former session numbers
            record = PublisherRecord(
                self._pubend, publisher, session or max(1, clock), 0, (), clock
            )
        else:
            session = session or held.session + 1
            record = msgspec.structs.replace(held, session=session, used=clock)
        self._records[publisher] = record
        return record

    def get(self, publisher: str, session: int) -> PublisherRecord:
        """Return the record of a publisher; refuse if the session is not its newest."""
        held = self._records.get(publisher)
        if held is None:
            raise PublishRefusedError(f"publisher {publisher!r} is not open here; open it again")
        if session != held.session:
            raise PublishRefusedError(
                f"publisher {publisher!r} was opened by a newer session; open it again to continue"
            )
        return held

    def session_of(self, publisher: str) -> int | None:
        """Return the newest session of a publisher, or None if the publisher is not known."""
        held = self._records.get(publisher)
        return None if held is None else held.session

    def too_old(self, held: PublisherRecord, first: int, count: int) -> range:
        """Return the first sequences of a batch that are older than the record's window."""
        if first < FIRST_SEQUENCE:
            raise PublishRefusedError(
                f"sequence {first} cannot be published: sequences start at {FIRST_SEQUENCE}"
            )
        lowest = held.window[0][0] if held.window else first
        return range(first, min(first + count, lowest))

    def published(
        self, held: PublisherRecord, first: int, count: int, found: Mapping[int, Tick]
    ) -> tuple[Tick, ...]:
        """Return the ticks of the first events of a batch that are already published.

        ``found`` has the ticks of sequences older than the window that are in the log.
        """
        repeated = range(first, min(first + count - 1, held.last_sequence) + 1)
        if not repeated:
            return ()
        known = {**found, **_remembered(held, repeated)}
        for sequence in repeated:
            if sequence not in known:
                # a made-up tick would be a false position, an acknowledgement a false promise
                raise PublishRefusedError(self._fate(held, sequence))
        return tuple(known[sequence] for sequence in repeated)

    def append(
        self,
        held: PublisherRecord,
        new: tuple[Publication, ...],
        clock: int,
        logged_bytes: int = 0,
        logged_events: int = 0,
    ) -> PublisherRecord:
        """Add publications to their publisher's record; return the record to write."""
        assert new[-1].tick - new[0].tick == len(new) - 1, "the ticks of a batch have no gap"
        batch = (new[0].sequence, new[0].tick, len(new))
        return self.extend(held, batch, clock, logged_bytes, logged_events)

    def extend(
        self,
        held: PublisherRecord,
        batch: tuple[int, Tick, int],
        clock: int,
        logged_bytes: int = 0,
        logged_events: int = 0,
    ) -> PublisherRecord:
        """Add a batch (first sequence, first tick, count); return the record to write."""
        sequence, _, count = batch
        record = msgspec.structs.replace(
            held,
            last_sequence=sequence + count - 1,
            window=(*held.window, batch)[-self._window :],
            used=clock,
            logged_bytes=logged_bytes,
            logged_events=logged_events,
        )
        self._records[held.publisher] = record
        return record

    def forget_unused(self, since: int) -> list[PublisherRecord]:
        """Remove and return the publishers that were last used before a time."""
        unused = [each for each in self._records.values() if each.used < since]
        for each in unused:
            del self._records[each.publisher]
        return unused

    def _fate(self, held: PublisherRecord, sequence: int) -> str:
        last = held.last_sequence
        if held.window and sequence > held.window[0][0]:
            why = f"was skipped: {last} is published without it"
        else:
            why = "was skipped, or its event is released from the log"
        return f"sequence {sequence} {why}; continue after {last}"


def _remembered(held: PublisherRecord, sequences: range) -> dict[int, Tick]:
    """Return the ticks of the sequences that are in the record's window."""
    return {
        sequence: tick + sequence - first
        for first, tick, count in held.window
        for sequence in range(max(first, sequences.start), min(first + count, sequences.stop))
    }
