"""The oracle: what really is, learned from the disks and from what publishers said they sent.

A publication exists from the moment its row is durable, whether or not its publisher was told. What
was released no longer has to be delivered but is still known here. So the truth of a subscription
is brute force: every publication after its start that its governing filter matches.
"""

from __future__ import annotations

import bisect
from collections import Counter
from typing import TYPE_CHECKING

from gapless.content.filter import Filter
from gapless.content.values import Value
from gapless.core.ids import BrokerId, PubendId
from gapless.messages.overlay import Quality
from gapless.messages.records import (
    AppendRow,
    DeleteRecord,
    LogRow,
    PubendRecord,
    PutRecord,
    StorageChange,
    TrimLog,
)
from gapless.messages.streams import Publication

if TYPE_CHECKING:
    from gapless_lab.sim.staging import WriterChecker
    from gapless_lab.sim.world import SimulatedHost, World

__all__ = ["Oracle", "PublishedStream"]


class PublishedStream:
    """All that was ever published durably on one pubend."""

    __slots__ = (
        "advertisement",
        "broker",
        "clocks",
        "columns",
        "guaranteed",
        "logged",
        "promised",
        "pubend",
        "publications",
        "released",
        "sequences",
        "ticks",
    )

    def __init__(self, record: PubendRecord) -> None:
        self.pubend = record.pubend
        self.broker: BrokerId = record.properties.broker
        self.advertisement = record.properties.advertisement
        self.guaranteed = record.properties.quality is Quality.GUARANTEED
        self.released = record.released
        self.promised = -1
        """Up to here a client was told all there is."""
        self.ticks: list[int] = []
        self.publications: list[Publication] = []
        self.clocks: list[int] = []
        """The wall clock of the row that each publication is in."""
        self.columns: dict[str, list[bool]] = {}
        """By filter which publications match: each is asked once for all subscriptions."""
        self.sequences: dict[str, int] = {}
        """The last sequence of each publisher."""
        self.logged: dict[tuple[str, int], int] = {}
        """The tick of each (publisher, sequence)."""

    def after(self, tick: int) -> int:
        """Return the place of the first publication after a tick."""
        return bisect.bisect_right(self.ticks, tick)

    def at(self, tick: int) -> Publication | None:
        """Return the publication of a tick."""
        index = bisect.bisect_left(self.ticks, tick)
        if index < len(self.ticks) and self.ticks[index] == tick:
            return self.publications[index]
        return None


class Oracle:
    """All streams, all that publishers sent, and compiled filters."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._filters: dict[str, Filter] = {}
        self.streams: dict[PubendId, PublishedStream] = {}
        self.sent: dict[tuple[PubendId, str, int], tuple[dict[str, Value], bytes]] = {}
        """What publishers sent, by pubend, publisher and sequence."""
        self.erased: Counter[tuple[BrokerId, str]] = Counter()
        """How often the record of a durable subscription was erased at a broker: at its end, by
        expiry, or because it had moved."""
        self.writers: dict[str, WriterChecker] = {}
        """Who stages; what they have published shows when it is logged."""
        for host in world.hosts.values():
            host.disk.listeners.append(self.durable)

    def filter(self, text: str) -> Filter:
        """Return the filter of a text."""
        found = self._filters.get(text)
        if found is None:
            found = self._filters[text] = Filter(text)
        return found

    def matches(self, stream: PublishedStream, text: str, index: int) -> bool:
        """Say whether the filter matches the publication at a place of a stream."""
        column = stream.columns.get(text)
        if column is None:
            column = stream.columns[text] = []
        if len(column) <= index:
            test = self.filter(text).matches
            column += [test(each.attributes) for each in stream.publications[len(column) :]]
        return column[index]

    @property
    def publications(self) -> int:
        """How many publications are durable."""
        return sum(len(stream.ticks) for stream in self.streams.values())

    def stream_at(self, host: SimulatedHost, name: str) -> PublishedStream | None:
        """Return the stream of a name at a host; the numbers of names differ from broker to broker."""
        found = (each for each in self.streams.values() if each.broker == host.broker)
        return next((each for each in found if each.pubend.name == name), None)

    def is_corrupt(self, stream: PublishedStream) -> bool:
        """Say whether a part of the stream's log cannot be read any more."""
        return bool(self._world.hosts[stream.broker].disk.corrupt_rows.get(stream.pubend))

    def was_corrupt(self, stream: PublishedStream) -> bool:
        """Say whether a part of the log cannot be read, or could not before it was released."""
        return stream.pubend in self._world.hosts[stream.broker].disk.once_corrupt

    # --- learning ----------------------------------------------------------------------------

    def durable(self, host: SimulatedHost, change: StorageChange) -> None:
        """Learn from a change that is on disk now."""
        if type(change) is AppendRow:
            self._appended(host, change.row)
        elif type(change) is PutRecord and type(change.record) is PubendRecord:
            self._stored(host, change.record)
        elif type(change) is TrimLog:
            stream = self.streams[change.pubend]
            stream.released = max(stream.released, change.up_to)
        elif type(change) is DeleteRecord and change.key[0] == "subscription":
            self.erased[host.broker, change.key[1]] += 1

    def _stored(self, host: SimulatedHost, record: PubendRecord) -> None:
        stream = self.streams.get(record.pubend)
        if stream is None:
            self.streams[record.pubend] = PublishedStream(record)
            return
        if stream.broker != host.broker:
            self._world.violate("duplicate", f"{record.pubend} has two PHBs")
        stream.advertisement = record.properties.advertisement
        stream.released = max(stream.released, record.released)

    def _appended(self, host: SimulatedHost, row: LogRow) -> None:
        stream = self.streams.get(row.pubend)
        if stream is None or stream.broker != host.broker:
            self._world.violate("spurious", f"{host.broker} logs {row.pubend}, not its own")
            return
        for publication in row.publications:
            self._check_logged(stream, row, publication)
            stream.ticks.append(publication.tick)
            stream.publications.append(publication)
            stream.clocks.append(row.clock)
            stream.sequences[publication.publisher] = publication.sequence
            stream.logged[publication.publisher, publication.sequence] = publication.tick

    def _check_logged(self, stream: PublishedStream, row: LogRow, publication: Publication) -> None:
        """Check a publication on its way into the log: I1, I12, and what R27 must refuse."""
        last = stream.ticks[-1] if stream.ticks else -1
        name = f"{stream.pubend} {publication.publisher}/{publication.sequence}"
        if not max(last + 1, row.first, stream.promised + 1) <= publication.tick <= row.last:
            self._world.violate("nonmonotonic", f"{name} at {publication.tick} in {row}")
        if publication.sequence <= stream.sequences.get(publication.publisher, 0):
            self._world.violate("duplicate", f"{name} is logged again, or too late (I12)")
        writer = self.writers.get(publication.publisher)
        sent = self.sent.get((stream.pubend, publication.publisher, publication.sequence))
        if writer is not None:
            writer.logged(publication)
        elif sent != (publication.attributes, publication.payload):
            self._world.violate("spurious", f"{name} is logged but was not sent so")
        if not self.filter(stream.advertisement).matches(publication.attributes):
            self._world.violate("refused", f"{name} lies outside its advertisement")
