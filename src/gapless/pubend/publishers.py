"""The publishers of one pubend: who may publish, and which sequences are already there (R27, R28).

Theory of operation. A publisher numbers its events, each above the one before. Opening it gives a
session and fences older ones. A batch is published whole or refused whole, so every sequence has one
of three fates:

- it was *published*: a repetition is answered with the tick of its first copy;
- it was *passed over*: a higher one was published without it. Within a session requests come in
  order, and a client that reconnects sends what was not answered before what is new (R28). So a batch
  that leaves sequences out says that the client has given them up, as after a refusal;
- it is *new*: above all that were published.

The ticks of the last batches are remembered; those below may be in the log, where :mod:`.repeats`
looks for them. What has no tick in either place was passed over or is released. It is refused, never
acknowledged: a client that sends 9 before its unanswered 8 learns that 8 is not there (A21). A client
that has no more batches unanswered than the window never gets there. The last sequence and the ticks are on
disk in the transaction of the log row, so all this is the same after a crash.

A publisher that was not used for long is forgotten. Then its past is unknown: what it repeats from
before would be new.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from gapless.content.filter import EVERYTHING, Filter
from gapless.core.ids import PubendId
from gapless.core.ticks import Tick
from gapless.messages.records import PublisherRecord
from gapless.messages.streams import Events, Publication

__all__ = [
    "PublishRefusedError",
    "Publishers",
    "last_logged",
    "refuse_unadvertised",
    "with_ticks",
]

FIRST_SEQUENCE: Final = 1
"""The lowest sequence: 0 says that nothing was published."""


class PublishRefusedError(Exception):
    """A batch that cannot be published; nothing of it was."""


def last_logged(publishers: Iterable[PublisherRecord]) -> Tick:
    """Return the last tick in a pubend's log, or above it all if a ceiling covers it.

    The last tick of every append is in the record of its publisher, in one transaction. A record
    that is gone has left a ceiling not below its last tick.
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
    """The publishers of a pubend, as they will be when all writes are through."""

    def __init__(
        self, pubend: PubendId, window: int, records: Iterable[PublisherRecord] = ()
    ) -> None:
        self._pubend = pubend
        self._window = window
        self._records = {each.publisher: each for each in records}

    def __len__(self) -> int:
        """Return how many are known."""
        return len(self._records)

    @property
    def logged(self) -> tuple[Tick, int]:
        """The last tick that was logged, and how many bytes were ever logged with it."""
        records = self._records.values()
        return last_logged(records), max((each.logged_bytes for each in records), default=0)

    def open(self, publisher: str, clock: int, session: int | None = None) -> PublisherRecord:
        """Begin a session of a publisher, by default the next number; older ones are over."""
        held = self._records.get(publisher)
        if held is None:
            # it may have been known and forgotten: the clock is above the sessions of that time
            record = PublisherRecord(
                self._pubend, publisher, session or max(1, clock), 0, (), clock
            )
        else:
            session = session or held.session + 1
            record = msgspec.structs.replace(held, session=session, used=clock)
        self._records[publisher] = record
        return record

    def get(self, publisher: str, session: int) -> PublisherRecord:
        """Return a publisher whose newest session this is."""
        held = self._records.get(publisher)
        if held is None:
            raise PublishRefusedError(f"publisher {publisher!r} is not open here; open it to go on")
        if session != held.session:
            raise PublishRefusedError(
                f"publisher {publisher!r} was opened again elsewhere; open it to go on"
            )
        return held

    def session_of(self, publisher: str) -> int | None:
        """Return the newest session of a publisher, None if it is not known."""
        held = self._records.get(publisher)
        return None if held is None else held.session

    def too_old(self, held: PublisherRecord, first: int, count: int) -> range:
        """Return those at the head of a batch that may be published, but below all remembered."""
        if first < FIRST_SEQUENCE:
            raise PublishRefusedError(
                f"sequence {first} cannot be published: sequences begin at {FIRST_SEQUENCE}"
            )
        lowest = held.window[0][0] if held.window else first
        return range(first, min(first + count, lowest))

    def published(
        self, held: PublisherRecord, first: int, count: int, found: Mapping[int, Tick]
    ) -> tuple[Tick, ...]:
        """Return the ticks of those at the head of a batch that are already published.

        ``found`` has the ticks of those that are too old to be remembered, if they are in the log.
        """
        repeated = range(first, min(first + count - 1, held.last_sequence) + 1)
        if not repeated:
            return ()
        known = {**found, **_remembered(held, repeated)}
        for sequence in repeated:
            if sequence not in known:
                # telling a made-up tick would be a false position, telling ok a false promise
                raise PublishRefusedError(self._fate(held, sequence))
        return tuple(known[sequence] for sequence in repeated)

    def append(
        self, held: PublisherRecord, new: tuple[Publication, ...], clock: int, logged_bytes: int = 0
    ) -> PublisherRecord:
        """Note what is published now; return the record to write with it."""
        assert new[-1].tick - new[0].tick == len(new) - 1, "the ticks of a batch have no gap"
        return self.extend(held, (new[0].sequence, new[0].tick, len(new)), clock, logged_bytes)

    def extend(
        self, held: PublisherRecord, batch: tuple[int, Tick, int], clock: int, logged_bytes: int = 0
    ) -> PublisherRecord:
        """Do the same with a batch of which its first sequence, its first tick and its size are known."""
        sequence, _, count = batch
        record = msgspec.structs.replace(
            held,
            last_sequence=sequence + count - 1,
            window=(*held.window, batch)[-self._window :],
            used=clock,
            logged_bytes=logged_bytes,
        )
        self._records[held.publisher] = record
        return record

    def forget_unused(self, since: int) -> list[PublisherRecord]:
        """Take out and return those that were last used before a time."""
        unused = [each for each in self._records.values() if each.used < since]
        for each in unused:
            del self._records[each.publisher]
        return unused

    def _fate(self, held: PublisherRecord, sequence: int) -> str:
        last = held.last_sequence
        if held.window and sequence > held.window[0][0]:
            why = f"was passed over: {last} is published without it"
        else:
            why = "was passed over, or published so long ago that the log no longer has it"
        return f"sequence {sequence} {why}; go on after {last}"


def _remembered(held: PublisherRecord, sequences: range) -> dict[int, Tick]:
    """Return the ticks of those sequences whose batches are remembered."""
    return {
        sequence: tick + sequence - first
        for first, tick, count in held.window
        for sequence in range(max(first, sequences.start), min(first + count, sequences.stop))
    }
