"""The calls of writers that stage and commit; what they mean is in :mod:`gapless.pubend.staging`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from gapless.core.ids import PubendId
from gapless.messages.clients import RefusalCause, Refused
from gapless.messages.records import Record
from gapless.messages.staging import (
    BatchCommitted,
    BatchDropped,
    ChunkStaged,
    CommitBatch,
    DropBatch,
    StageChunk,
)
from gapless.pubend.pubend import Pubend, PublishRefusedError
from gapless.pubend.staging import CommitOutcome, Staging

if TYPE_CHECKING:
    from gapless.broker.entry import Broker

__all__ = ["StagingCalls"]


class StagingCalls:
    """What writers ask of this broker's pubends."""

    def __init__(self, broker: Broker, records: Iterable[Record]) -> None:
        self._pubends = broker.pubends
        self._context = broker.context
        self.staging = Staging(broker.context, broker.sessions.clock_view, records)

    def handle(self, client: str, request: Any) -> bool:
        """Take a request of a writer; False for others."""
        if not isinstance(request, StageChunk | CommitBatch | DropBatch):
            return False
        hosted = self._hosted(client, request.request, request.pubend)
        if hosted is not None:
            try:
                self._do(client, hosted, request)
            except PublishRefusedError as error:
                self._context.notify(client, Refused(request.request, str(error)))
        return True

    def _hosted(self, client: str, request: int, pubend: PubendId) -> Pubend | None:
        hosted = self._pubends.hosted.get(pubend)
        if hosted is None:
            self._pubends.refuse_missing(client, request, pubend, RefusalCause.UNAVAILABLE)
            return None
        if not isinstance(hosted, Pubend):
            reason = f"the pubend {pubend} is best effort: it has no log to commit to"
            self._context.notify(client, Refused(request, reason))
            return None
        return hosted

    def _do(self, client: str, hosted: Pubend, call: StageChunk | CommitBatch | DropBatch) -> None:
        notify, number = self._context.notify, call.request

        def committed(outcome: CommitOutcome) -> None:
            notify(client, _answer(number, outcome))

        match call:
            case StageChunk():
                self.staging.stage(hosted, call, lambda: notify(client, ChunkStaged(number)))
            case CommitBatch():
                self.staging.commit(hosted, call, committed)
            case DropBatch():
                self.staging.drop(call, lambda: notify(client, BatchDropped(number)))


def _answer(request: int, outcome: CommitOutcome) -> BatchCommitted:
    record = outcome.record
    if record is None:
        return BatchCommitted(request, 0, 0, 0, repeated=True)
    return BatchCommitted(
        request, record.first, record.last, record.events, repeated=outcome.repeated
    )
