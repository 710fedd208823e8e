"""The canonical digest of a run: the decisions of brokers, without any word that a refactoring may
change.

Every step is included: the time, the broker, the event and all effects in their order, with their
values. A message or record is its number in the table below and its field values. Omitted are names
of classes, fields and modules, texts for people, the words of record keys, tags and version numbers
of formats. So two versions of the sources have equal digests exactly if their brokers decide the
same.

``CODED`` gives every message, record and storage change its number. A renamed class keeps its line,
a new class gets a line at the end. A class without a line is a plain value: its fields are included
in its place, without a number, so fields may move into a class of their own and back.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from gapless.core.effects import DisconnectClient, Fetch, Notify, Send, SetPeers, StartAgain, Write
from gapless.core.errors import UsageError
from gapless.core.events import (
    ClientDown,
    ClientDrained,
    ClientFull,
    ClientRequest,
    ClientUp,
    Fetched,
    LinkDown,
    LinkDrained,
    LinkFull,
    LinkUp,
    MachineEvent,
    Received,
    Stopping,
    Written,
)
from gapless.messages import (
    clients,
    closing,
    mobility,
    operating,
    overlay,
    plans,
    propagation,
    reading,
    records,
    reshape,
    staging,
    streams,
    unicast,
)
from gapless.messages import pubend_requests as requests
from gapless_lab.sim.options import draw
from gapless_lab.sim.runner import DEFAULT_OBSERVERS, SimulationRun
from gapless_lab.sim.world import SimulatedProcess, World, WorldObserver

__all__ = ["CODED", "RunDigest", "compare", "digest_of", "digests_of", "load", "save"]

CODED: Final[tuple[type, ...]] = (
    # events
    LinkUp,
    LinkDown,
    LinkFull,
    LinkDrained,
    Received,
    ClientUp,
    ClientDown,
    ClientFull,
    ClientDrained,
    ClientRequest,
    Stopping,
    Written,
    Fetched,
    # effects
    Send,
    Notify,
    DisconnectClient,
    Write,
    Fetch,
    SetPeers,
    # between brokers
    overlay.Hello,
    overlay.Packet,
    overlay.Heartbeat,
    overlay.RelayProbe,
    overlay.Relayed,
    overlay.RelayBroken,
    overlay.RelayFull,
    overlay.Announce,
    overlay.PartitionInfo,
    overlay.NameQuery,
    overlay.NameReply,
    overlay.Retire,
    mobility.Superseded,
    propagation.TableRequest,
    propagation.TableStop,
    propagation.TableFull,
    propagation.TableDelta,
    streams.Attach,
    streams.Attached,
    streams.FeedUnavailable,
    streams.Detach,
    streams.StreamData,
    streams.StreamSilence,
    streams.StreamEpoch,
    streams.StreamEpochRequest,
    streams.Nack,
    streams.Released,
    streams.Unreadable,
    streams.DefineMemberSet,
    streams.ForgetMemberSet,
    streams.AckReport,
    streams.AckExpected,
    streams.AdvanceRequest,
    requests.Read,
    requests.ReadReply,
    requests.ReleaseLogHold,
    requests.LeavePubend,
    requests.RequestDone,
    # requests of clients
    clients.OpenPubend,
    clients.OpenPublisher,
    clients.Publish,
    clients.Subscribe,
    clients.Credit,
    clients.Ack,
    clients.SetFilter,
    clients.Seek,
    clients.Unsubscribe,
    reading.ReadLog,
    operating.RetireBroker,
    operating.ListPartitions,
    operating.GetBroker,
    operating.GetTopology,
    operating.ListPubends,
    operating.ListSubscriptions,
    operating.GetSubscription,
    operating.SeekDurable,
    operating.SetDurableFilter,
    operating.RemoveDurable,
    staging.StageChunk,
    staging.CommitBatch,
    staging.DropBatch,
    # replies and notices to clients
    clients.PubendOpened,
    clients.PublisherOpened,
    clients.Published,
    clients.Subscribed,
    clients.SubscriptionStarted,
    clients.Stalled,
    clients.Delivery,
    clients.Progress,
    clients.Gap,
    clients.SubscriptionEnded,
    clients.FilterSet,
    clients.FilterChanged,
    clients.Unsubscribed,
    reading.ReadPart,
    operating.BrokerRetired,
    operating.PartitionTable,
    clients.Refused,
    operating.BrokerReply,
    operating.TopologyReply,
    operating.PubendList,
    operating.SubscriptionList,
    operating.SubscriptionReply,
    operating.DurableSeekDone,
    staging.ChunkStaged,
    staging.BatchCommitted,
    staging.BatchDropped,
    # storage
    records.PutRecord,
    records.DeleteRecord,
    records.AppendRow,
    records.AppendPackedRow,
    records.TrimLog,
    records.LogRow,
    records.PackedRow,
    records.IncarnationRecord,
    records.ConfigurationRecord,
    records.NeighbourhoodRecord,
    records.PubendRecord,
    records.StreamEpochRecord,
    records.MemberRecord,
    records.LogHoldRecord,
    records.KnownHostRecord,
    records.EndedMembershipRecord,
    records.PublisherRecord,
    records.StagedRecord,
    records.CommitRecord,
    records.JoinedPubendRecord,
    records.PubendLocationRecord,
    records.RetirementRecord,
    records.SubscriptionRecord,
    mobility.FindSubscription,
    mobility.SubscriptionFound,
    mobility.SubscriptionHost,
    mobility.CollectSubscriptions,
    mobility.SubscriptionsCollected,
    mobility.DurableEntry,
    clients.FindDurable,
    clients.DurableFound,
    operating.ListAllDurable,
    operating.AllDurableList,
    requests.CountEvents,
    requests.EventCounts,
    operating.GetLag,
    operating.LagReply,
    records.TickCeilingRecord,
    clients.LeaveSubscription,
    unicast.UnicastRequest,
    unicast.UnicastReply,
    unicast.Walk,
    unicast.Walked,
    operating.WalkTree,
    operating.TreeWalked,
    # closing
    clients.Closed,
    closing.ClosePubend,
    closing.ClosePubendReply,
    records.TombstoneRecord,
    # operations and plans
    StartAgain,
    reshape.OpRequest,
    reshape.OpReply,
    reshape.TakeOverCell,
    reshape.TakeoverReply,
    reshape.ReadmitBroker,
    plans.ApplyPlan,
    plans.GetPlan,
    plans.PlanReply,
    plans.AbortPlan,
    plans.PlanAborted,
    plans.AreEdgesSettled,
    plans.EdgesSettled,
    reshape.OpPrepare,
    reshape.OpPrepared,
    reshape.OpRefused,
    reshape.OpSwitch,
    reshape.OpSwitched,
    reshape.OpFinish,
    reshape.OpFinished,
    reshape.OpAbort,
    reshape.OpAborted,
    reshape.OpInquire,
    reshape.OpOutcome,
    reshape.Takeover,
    reshape.Promise,
    overlay.RecordPush,
    overlay.RecordList,
    overlay.RecordWant,
    records.PlanRecord,
    records.LockRecord,
    records.OperationRecord,
    records.PromiseRecord,
    overlay.ControlFrame,
)
"""The number of a class is its index here; lines are renamed and added at the end, never moved."""

KEY_WORDS: Final = (
    "incarnation",
    "configuration",
    "neighbourhood",
    "pubend",
    "stream epoch",
    "member",
    "ended membership",
    "log hold",
    "known host",
    "publisher",
    "staged",
    "commit",
    "joined pubend",
    "pubend location",
    "retirement",
    "subscription",
    "tombstone",
    "tick ceiling",
    "plan",
    "operation",
    "operation lock",
    "promise",
)
"""The first part of every record key; its number represents it."""

OMITTED: Final[dict[type, frozenset[str]]] = {
    DisconnectClient: frozenset({"reason"}),
    Fetched: frozenset({"corruption"}),
    overlay.Hello: frozenset({"protocol"}),
    streams.Unreadable: frozenset({"reason"}),
    requests.ReadReply: frozenset({"fault"}),
    clients.PendingStart: frozenset({"reason"}),
    clients.Stalled: frozenset({"reason"}),
    clients.SubscriptionEnded: frozenset({"reason"}),
    clients.Refused: frozenset({"reason"}),
    operating.HostedState: frozenset({"corruption"}),
    operating.CursorState: frozenset({"state", "pending_reason"}),
}
"""Fields with texts for people, and format versions: the digest has only whether they are empty."""

_Fold = Callable[[Any, list[Any]], None]


class _Folder:
    """Turns values into flat lists of numbers and texts; caches the conversion of each class."""

    def __init__(self) -> None:
        self._codes = {kind: code for code, kind in enumerate(CODED, 1)}
        self._words = {word: code for code, word in enumerate(KEY_WORDS, 1)}
        self._folds: dict[type, _Fold] = dict.fromkeys(
            (int, float, str, bytes, bool, type(None)), _plain
        )
        self._folds[memoryview] = lambda value, out: out.append(bytes(value))
        self._folds[bytearray] = lambda value, out: out.append(bytes(value))
        self._folds[tuple] = self._folds[list] = self._sequence
        self._folds[dict] = self._mapping
        self._folds[records.DeleteRecord] = self._key

    def fold(self, value: Any, out: list[Any]) -> None:
        """Append a value, flattened."""
        kind = type(value)
        fold = self._folds.get(kind)
        if fold is None:
            fold = self._folds[kind] = self._fold_of(kind)
        fold(value, out)

    def _fold_of(self, kind: type) -> _Fold:
        if issubclass(kind, Enum):
            members = list(kind)
            return lambda value, out: out.append(members.index(value))
        if issubclass(kind, msgspec.Struct):
            return self._struct(kind)
        if issubclass(kind, tuple):
            return self._named_tuple
        raise AssertionError(f"{kind.__name__} cannot be part of a digest of steps")

    def _struct(self, kind: type[msgspec.Struct]) -> _Fold:
        code = self._codes.get(kind)
        hidden = OMITTED.get(kind, frozenset())
        unknown = hidden.difference(kind.__struct_fields__)
        assert not unknown, f"{kind.__name__} has no field {', '.join(sorted(unknown))}"
        fields = [(name, name in hidden) for name in kind.__struct_fields__]

        def fold(value: Any, out: list[Any]) -> None:
            if code is not None:
                out.append(code)
            for name, is_hidden in fields:
                part = getattr(value, name)
                if is_hidden:
                    out.append(bool(part))
                else:
                    self.fold(part, out)

        return fold

    def _sequence(self, value: Any, out: list[Any]) -> None:
        out.append(len(value))
        for each in value:
            self.fold(each, out)

    def _named_tuple(self, value: Any, out: list[Any]) -> None:
        for each in value:
            self.fold(each, out)

    def _mapping(self, value: Any, out: list[Any]) -> None:
        out.append(len(value))
        for key, each in value.items():
            self.fold(key, out)
            self.fold(each, out)

    def _key(self, value: Any, out: list[Any]) -> None:
        word, *rest = value.key
        out += (self._codes[records.DeleteRecord], self._words[word], *rest)


def _plain(value: Any, out: list[Any]) -> None:
    out.append(value)


class RunDigest(WorldObserver):
    """Folds every step of a run into a digest."""

    def __init__(self) -> None:
        self._folder = _Folder()
        self._hash = hashlib.blake2b(digest_size=8)
        self._encode = msgspec.msgpack.Encoder().encode

    def stepped(
        self, world: World, process: SimulatedProcess, event: MachineEvent, effects: list[Any]
    ) -> None:
        """Add one step."""
        out: list[Any] = [world.now, process.host.index]
        self._folder.fold(event, out)
        for effect in effects:
            self._folder.fold(effect, out)
        self._hash.update(self._encode(out))

    def hexdigest(self) -> str:
        """Return the digest so far, in hexadecimal."""
        return self._hash.hexdigest()


def digest_of(seed: int, *, checked: bool = False) -> str:
    """Run a seed and return its digest; ``checked`` runs the invariants too, which changes nothing."""
    run = SimulationRun(draw(seed), observers=DEFAULT_OBSERVERS if checked else ())
    digest = RunDigest()
    run.world.observers.append(digest)
    result = run.play()
    return f"{digest.hexdigest()}.{result.trace_hash}.{len(result.violations)}"


def digests_of(
    seeds: Iterable[int], *, workers: int = 1, checked: bool = False
) -> Iterator[tuple[int, str]]:
    """Run seeds, in order, and return each with its digest."""
    wanted = list(seeds)
    one = partial(digest_of, checked=checked)
    if workers <= 1:
        yield from zip(wanted, map(one, wanted), strict=True)
        return
    with ProcessPoolExecutor(workers) as pool:
        yield from zip(wanted, pool.map(one, wanted, chunksize=2), strict=True)


def load(path: Path) -> dict[int, str]:
    """Read digests that :func:`save` wrote: a seed and its digest a line."""
    found: dict[int, str] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        seed, _, digest = line.partition(" ")
        if not seed.isdigit() or not digest:
            raise UsageError(f"{path}:{number} is not a seed and a digest: {line!r}")
        found[int(seed)] = digest
    return found


def save(path: Path, digests: dict[int, str]) -> None:
    """Write digests, lowest seed first."""
    lines = [f"{seed} {digest}\n" for seed, digest in sorted(digests.items())]
    path.write_text("".join(lines), encoding="utf-8")


def compare(recorded: dict[int, str], found: dict[int, str]) -> list[int]:
    """Return the seeds whose digests differ from the recorded ones, or were never recorded."""
    return [seed for seed, digest in found.items() if recorded.get(seed) != digest]
