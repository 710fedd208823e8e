"""The records of a broker, grouped by the component that owns them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, TypeVar

from gapless.core.ids import PubendId
from gapless.core.ticks import Tick
from gapless.messages.records import (
    CommitRecord,
    ConfigurationRecord,
    EndedMembershipRecord,
    IncarnationRecord,
    JoinedPubendRecord,
    KnownHostRecord,
    LockRecord,
    LogHoldRecord,
    MemberRecord,
    NeighbourhoodRecord,
    OperationRecord,
    PlanRecord,
    PromiseRecord,
    PubendLocationRecord,
    PubendRecord,
    PublisherRecord,
    Record,
    RetirementRecord,
    StagedRecord,
    StreamEpochRecord,
    SubscriptionRecord,
    TickCeilingRecord,
    TombstoneRecord,
)

__all__ = ["StoredPubend", "StoredState"]

R = TypeVar("R")


class StoredPubend(NamedTuple):
    """A hosted pubend and the records that belong to it."""

    record: PubendRecord
    stream_epochs: tuple[StreamEpochRecord, ...] = ()
    publishers: tuple[PublisherRecord, ...] = ()
    members: tuple[MemberRecord, ...] = ()
    log_holds: tuple[LogHoldRecord, ...] = ()
    ended_memberships: tuple[EndedMembershipRecord, ...] = ()
    known_hosts: tuple[KnownHostRecord, ...] = ()


class StoredState(NamedTuple):
    """All records of a broker by kind, in the order in which they were read."""

    incarnation: int
    """The greatest stored incarnation; 0 if there is none."""
    configuration: ConfigurationRecord | None
    neighbourhood: NeighbourhoodRecord | None
    pubends: tuple[StoredPubend, ...]
    tick_ceiling: Tick
    """The tick ceiling of the broker; 0 if there is none."""
    tombstones: tuple[TombstoneRecord, ...]
    memberships: tuple[JoinedPubendRecord, ...]
    locations: tuple[PubendLocationRecord, ...]
    retirements: tuple[RetirementRecord, ...]
    subscriptions: tuple[SubscriptionRecord, ...]
    staged: tuple[StagedRecord, ...]
    commits: tuple[CommitRecord, ...]
    plans: tuple[PlanRecord, ...]
    """At most one."""
    operations: tuple[OperationRecord, ...]
    locks: tuple[LockRecord, ...]
    """At most one."""
    promises: tuple[PromiseRecord, ...]

    @classmethod
    def of(cls, records: Iterable[Record]) -> StoredState:
        """Group the records by kind and pubend."""
        by_kind: dict[type, list[Any]] = {}
        for record in records:
            by_kind.setdefault(type(record), []).append(record)

        def all_of(kind: type[R]) -> tuple[R, ...]:
            return tuple(by_kind.get(kind, ()))

        incarnations = (each.incarnation for each in all_of(IncarnationRecord))
        return cls(
            incarnation=max(incarnations, default=0),
            configuration=next(iter(all_of(ConfigurationRecord)), None),
            neighbourhood=next(iter(all_of(NeighbourhoodRecord)), None),
            pubends=_pubends(by_kind),
            tick_ceiling=max((each.ceiling for each in all_of(TickCeilingRecord)), default=0),
            tombstones=all_of(TombstoneRecord),
            memberships=all_of(JoinedPubendRecord),
            locations=all_of(PubendLocationRecord),
            retirements=all_of(RetirementRecord),
            subscriptions=all_of(SubscriptionRecord),
            staged=all_of(StagedRecord),
            commits=all_of(CommitRecord),
            plans=all_of(PlanRecord),
            operations=all_of(OperationRecord),
            locks=all_of(LockRecord),
            promises=all_of(PromiseRecord),
        )


def _pubends(by_kind: dict[type, list[Any]]) -> tuple[StoredPubend, ...]:
    def by_pubend(kind: type[R]) -> dict[PubendId, tuple[R, ...]]:
        found: dict[PubendId, list[R]] = {}
        for record in by_kind.get(kind, ()):
            found.setdefault(record.pubend, []).append(record)
        return {pubend: tuple(each) for pubend, each in found.items()}

    stream_epochs, publishers = by_pubend(StreamEpochRecord), by_pubend(PublisherRecord)
    members, log_holds = by_pubend(MemberRecord), by_pubend(LogHoldRecord)
    ended, known_hosts = by_pubend(EndedMembershipRecord), by_pubend(KnownHostRecord)
    return tuple(
        StoredPubend(
            record,
            stream_epochs=stream_epochs.get(record.pubend, ()),
            publishers=publishers.get(record.pubend, ()),
            members=members.get(record.pubend, ()),
            log_holds=log_holds.get(record.pubend, ()),
            ended_memberships=ended.get(record.pubend, ()),
            known_hosts=known_hosts.get(record.pubend, ()),
        )
        for record in by_kind.get(PubendRecord, ())
    )
