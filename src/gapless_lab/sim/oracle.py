"""The oracle: what was published, learned from the disks and from what publishers sent.

A publication exists as soon as its row is durable, whether or not its publisher got a reply.
Released publications need not be delivered any more but are still known here. So the expected
result of a subscription is computed by brute force: every publication after its start that matches
the filter that applies.
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
    SubscriptionRecord,
    TombstoneRecord,
    TrimLog,
)
from gapless.messages.streams import Publication

if TYPE_CHECKING:
    from gapless_lab.sim.staging import WriterChecker
    from gapless_lab.sim.world import SimulatedHost, World

__all__ = ["Oracle", "PublishedStream"]


class PublishedStream:
    """Everything that was ever published durably on one pubend."""

    __slots__ = (
        "advertisement",
        "broker",
        "clocks",
        "closed",
        "columns",
        "guaranteed",
        "is_closing",
        "logged",
        "may_give_up",
        "promised",
        "pubend",
        "publications",
        "released",
        "sealed",
        "sequences",
        "ticks",
    )

    def __init__(self, record: PubendRecord) -> None:
        self.pubend = record.pubend
        self.broker: BrokerId = record.properties.broker
        self.advertisement = record.properties.advertisement
        self.guaranteed = record.properties.quality is Quality.GUARANTEED
        self.released = record.released
        self.sealed = record.sealed
        """Its last tick, once that is durable (RS-32)."""
        self.closed = False
        """Whether it is a tombstone."""
        self.is_closing = False
        """Whether a client has requested to close it."""
        self.may_give_up = False
        """Whether a client has closed it without waiting for all members, so that gaps are lawful."""
        self.promised = -1
        """The tick up to which a reader got a complete reply."""
        self.ticks: list[int] = []
        self.publications: list[Publication] = []
        self.clocks: list[int] = []
        """The wall clock of each publication's row."""
        self.columns: dict[str, list[bool]] = {}
        """By filter: which publications match, computed once for all subscriptions."""
        self.sequences: dict[str, int] = {}
        """The last sequence of each publisher."""
        self.logged: dict[tuple[str, int], int] = {}
        """The tick of each (publisher, sequence)."""

    def after(self, tick: int) -> int:
        """Return the index of the first publication after a tick."""
        return bisect.bisect_right(self.ticks, tick)

    def at(self, tick: int) -> Publication | None:
        """Return the publication of a tick."""
        index = bisect.bisect_left(self.ticks, tick)
        if index < len(self.ticks) and self.ticks[index] == tick:
            return self.publications[index]
        return None


class Oracle:
    """All streams, everything that publishers sent, and compiled filters."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._filters: dict[str, Filter] = {}
        self.streams: dict[PubendId, PublishedStream] = {}
        self.sent: dict[tuple[PubendId, str, int], tuple[dict[str, Value], bytes]] = {}
        """The sent events, by pubend, publisher and sequence."""
        self.erased: Counter[tuple[BrokerId, str]] = Counter()
        """How often the record of a durable subscription was deleted at a broker: at its end, by
        expiry, or because it had moved.
        """
        self._hosted: dict[str, dict[BrokerId, SubscriptionRecord]] = {}
        """By name and broker: the records of durable subscriptions on disk."""
        self._newest: dict[str, tuple[int, BrokerId]] = {}
        """By name: the greatest epoch that was ever on disk, and its broker."""
        self.writers: dict[str, WriterChecker] = {}
        """The checkers of writers that stage, by writer."""
        world.disk_listeners.append(self.durable)

    def filter(self, text: str) -> Filter:
        """Return the filter of a text."""
        found = self._filters.get(text)
        if found is None:
            found = self._filters[text] = Filter(text)
        return found

    def matches(self, stream: PublishedStream, text: str, index: int) -> bool:
        """Return whether the filter matches the publication at an index of a stream."""
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
        """Return whether a part of the stream's log cannot be read."""
        return bool(self._world.hosts[stream.broker].disk.corrupt_rows.get(stream.pubend))

    def was_corrupt(self, stream: PublishedStream) -> bool:
        """Return whether a part of the log cannot be read, or could not before it was released."""
        return stream.pubend in self._world.hosts[stream.broker].disk.once_corrupt

    def host_of(self, name: str) -> BrokerId | None:
        """Return the broker that has the newest record of a durable subscription, if any has one."""
        found = self._hosted.get(name, {})
        return max(found, key=lambda broker: (found[broker].epoch, broker), default=None)

    def newest_host_of(self, name: str) -> BrokerId | None:
        """Return the broker with the newest subscription of a name; None if that has ended."""
        epoch, broker = self._newest.get(name, (0, ""))
        record = self._hosted.get(name, {}).get(broker)
        return broker if record is not None and record.epoch == epoch else None

    # --- durable changes ---------------------------------------------------------------------

    def durable(self, host: SimulatedHost, change: StorageChange) -> None:
        """Learn from a change that has become durable."""
        if type(change) is AppendRow:
            self._appended(host, change.row)
        elif type(change) is PutRecord and type(change.record) is PubendRecord:
            self._stored(host, change.record)
        elif type(change) is PutRecord and type(change.record) is TombstoneRecord:
            self._closed(host, change.record)
        elif type(change) is TrimLog:
            stream = self.streams[change.pubend]
            stream.released = max(stream.released, change.up_to)
        elif type(change) is DeleteRecord and change.key[0] == "subscription":
            self.erased[host.broker, change.key[1]] += 1
            self._hosted.get(change.key[1], {}).pop(host.broker, None)
        elif type(change) is PutRecord and type(change.record) is SubscriptionRecord:
            self._subscribed(host, change.record)

    def _subscribed(self, host: SimulatedHost, record: SubscriptionRecord) -> None:
        """A durable subscription is on disk. If programs search for it, its name has no other."""
        name = record.subscription
        found = self._hosted.setdefault(name, {})
        found[host.broker] = record
        rank = (record.epoch, host.broker)
        self._newest[name] = max(rank, self._newest.get(name, rank))
        keys = {each.incarnation_key for each in found.values()}
        if len(keys) > 1 and self._world.options.restarts:
            self._world.violate("second subscription", f"{name} is {' and '.join(sorted(keys))}")

    def _stored(self, host: SimulatedHost, record: PubendRecord) -> None:
        stream = self.streams.get(record.pubend)
        if stream is None:
            self.streams[record.pubend] = PublishedStream(record)
            return
        if stream.broker != host.broker:
            self._world.violate("duplicate", f"{record.pubend} has two PHBs")
        if stream.closed or stream.sealed not in {None, record.sealed}:
            self._world.violate("R-10", f"{record.pubend} ends at {record.sealed}, {stream.sealed}")
        stream.sealed = record.sealed
        stream.advertisement = record.properties.advertisement
        stream.released = max(stream.released, record.released)

    def _closed(self, host: SimulatedHost, record: TombstoneRecord) -> None:
        """A tombstone is on disk: its stream was sealed, and is released."""
        stream = self.streams.get(record.pubend)
        if stream is None or stream.broker != host.broker:
            self._world.violate("R-10", f"{host.broker} ends {record.pubend}, not its own")
            return
        if stream.guaranteed and stream.sealed != record.last:
            self._world.violate("R-10", f"{record.pubend} ends at {record.last}, {stream.sealed}")
        stream.closed, stream.sealed = True, record.last
        stream.released = max(stream.released, record.last)

    def _appended(self, host: SimulatedHost, row: LogRow) -> None:
        stream = self.streams.get(row.pubend)
        if stream is None or stream.broker != host.broker:
            self._world.violate("spurious", f"{host.broker} logs {row.pubend}, not its own")
            return
        if stream.sealed is not None:
            self._world.violate("R-10", f"{row.pubend} logs {row.last} after {stream.sealed}")
        for publication in row.publications:
            self._check_logged(stream, row, publication)
            stream.ticks.append(publication.tick)
            stream.publications.append(publication)
            stream.clocks.append(row.clock)
            stream.sequences[publication.publisher] = publication.sequence
            stream.logged[publication.publisher, publication.sequence] = publication.tick

    def _check_logged(self, stream: PublishedStream, row: LogRow, publication: Publication) -> None:
        """Check a publication that is being logged: I1, I12, and what R27 must refuse."""
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
            self._world.violate("spurious", f"{name} is logged but differs from what was sent")
        if not self.filter(stream.advertisement).matches(publication.attributes):
            self._world.violate("refused", f"{name} lies outside its advertisement")
