"""The durable records of a broker, each with a key, and the changes to them.

A change is applied completely or not at all. A record replaces the record of the same key. Log rows
have no key: they are appended, read by range, and trimmed from the low end.
"""

from gapless.messages.records.changes import (
    AppendPackedRow,
    AppendRow,
    DeleteRecord,
    LogRow,
    PackedRow,
    PutRecord,
    Record,
    StorageChange,
    TrimLog,
)
from gapless.messages.records.directory import PubendLocationRecord
from gapless.messages.records.overlay import (
    ConfigurationRecord,
    IncarnationRecord,
    NeighbourhoodRecord,
    RetirementRecord,
)
from gapless.messages.records.plans import PlanRecord
from gapless.messages.records.pubend import (
    EndedMembershipRecord,
    KnownHostRecord,
    LogHoldRecord,
    MemberRecord,
    PubendRecord,
    PublisherRecord,
    StreamEpochRecord,
    TickCeilingRecord,
    TombstoneRecord,
)
from gapless.messages.records.reshape import (
    LockRecord,
    OperationPhase,
    OperationRecord,
    PromiseRecord,
)
from gapless.messages.records.staging import CommitRecord, StagedRecord
from gapless.messages.records.subscribers import (
    FilterSegmentRecord,
    JoinedPubendRecord,
    MergeExclusionRecord,
    SubscriptionRecord,
)

__all__ = [
    "AppendPackedRow",
    "AppendRow",
    "CommitRecord",
    "ConfigurationRecord",
    "DeleteRecord",
    "EndedMembershipRecord",
    "FilterSegmentRecord",
    "IncarnationRecord",
    "JoinedPubendRecord",
    "KnownHostRecord",
    "LockRecord",
    "LogHoldRecord",
    "LogRow",
    "MemberRecord",
    "MergeExclusionRecord",
    "NeighbourhoodRecord",
    "OperationPhase",
    "OperationRecord",
    "PackedRow",
    "PlanRecord",
    "PromiseRecord",
    "PubendLocationRecord",
    "PubendRecord",
    "PublisherRecord",
    "PutRecord",
    "Record",
    "RetirementRecord",
    "StagedRecord",
    "StorageChange",
    "StreamEpochRecord",
    "SubscriptionRecord",
    "TickCeilingRecord",
    "TombstoneRecord",
    "TrimLog",
]
