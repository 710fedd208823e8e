"""The requests of writers that stage and commit batches; the rules are in :mod:`.staging`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from gapless.core.context import Context
from gapless.core.ids import PubendId
from gapless.messages.clients import RefusalCause
from gapless.messages.staging import (
    BatchCommitted,
    BatchDropped,
    ChunkStaged,
    CommitBatch,
    DropBatch,
    StageChunk,
)
from gapless.pubend.pubend import Pubend
from gapless.pubend.pubends import AnyPubend
from gapless.pubend.publishers import ClosedRefusalError, PublishRefusedError
from gapless.pubend.refusals import PubendRefusals
from gapless.pubend.staging import CommitOutcome, Staging

__all__ = ["WriterCalls"]

WriterCall: TypeAlias = StageChunk | CommitBatch | DropBatch


class WriterCalls:
    """Handles the requests of writers."""

    def __init__(
        self,
        context: Context,
        hosted: Mapping[PubendId, AnyPubend],
        staging: Staging,
        refusals: PubendRefusals,
    ) -> None:
        self._context = context
        self._pubends = hosted
        self._staging = staging
        self._refusals = refusals
        self.handlers: Mapping[type, Callable[[str, Any], None]] = {
            StageChunk: self._handle,
            CommitBatch: self._handle,
            DropBatch: self._handle,
        }

    def _handle(self, client: str, request: WriterCall) -> None:
        hosted = self._hosted(client, request.request, request.pubend)
        if hosted is not None:
            try:
                self._do(client, hosted, request)
            except ClosedRefusalError as error:
                self._refusals.refuse(client, request.request, str(error), RefusalCause.CLOSED)
            except PublishRefusedError as error:
                self._refusals.refuse(client, request.request, str(error))

    def _hosted(self, client: str, request: int, pubend: PubendId) -> Pubend | None:
        hosted = self._pubends.get(pubend)
        if hosted is None:
            self._refusals.refuse_unknown(client, request, pubend, RefusalCause.UNAVAILABLE)
            return None
        if not isinstance(hosted, Pubend):
            reason = f"the pubend {pubend} is best effort and has no log to commit to"
            self._refusals.refuse(client, request, reason)
            return None
        return hosted

    def _do(self, client: str, hosted: Pubend, call: WriterCall) -> None:
        notify, number = self._context.notify, call.request

        def committed(outcome: CommitOutcome) -> None:
            notify(client, _answer(number, outcome))

        match call:
            case StageChunk():
                self._staging.stage(hosted, call, lambda: notify(client, ChunkStaged(number)))
            case CommitBatch():
                self._staging.commit(hosted, call, committed)
            case DropBatch():
                self._staging.drop(call, lambda: notify(client, BatchDropped(number)))


def _answer(request: int, outcome: CommitOutcome) -> BatchCommitted:
    record = outcome.record
    if record is None:
        return BatchCommitted(request, 0, 0, 0, repeated=True)
    return BatchCommitted(
        request, record.first, record.last, record.events, repeated=outcome.repeated
    )
