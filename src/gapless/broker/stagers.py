"""The calls of writers that stage and commit; what they mean is in :mod:`gapless.pubend.staging`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from gapless.core.ids import PubendId
from gapless.messages.clients import Cause, Refused
from gapless.messages.records import Record
from gapless.messages.staging import (
    CommitStaged,
    DropStaged,
    Stage,
    Staged,
    StagedCommitted,
    StagedDropped,
)
from gapless.pubend.pubend import Pubend, PublishRefusedError
from gapless.pubend.staging import Outcome, Staging

if TYPE_CHECKING:
    from gapless.broker.entry import Broker

__all__ = ["Stagers"]


class Stagers:
    """What writers ask of this broker's pubends."""

    def __init__(self, broker: Broker, records: Iterable[Record]) -> None:
        self._pubends = broker.pubends
        self._context = broker.context
        self.staging = Staging(broker.context, broker.sessions.clock_view, records)

    def asked(self, client: str, request: Any) -> bool:
        """Take a request of a writer; False for others."""
        if not isinstance(request, Stage | CommitStaged | DropStaged):
            return False
        hosted = self._hosted(client, request.request, request.pubend)
        if hosted is not None:
            try:
                self._do(client, hosted, request)
            except PublishRefusedError as error:
                self._context.tell(client, Refused(request.request, str(error)))
        return True

    def _hosted(self, client: str, request: int, pubend: PubendId) -> Pubend | None:
        hosted = self._pubends.hosted.get(pubend)
        if hosted is None:
            self._pubends.refuse_missing(client, request, pubend, Cause.TRY_LATER)
            return None
        if not isinstance(hosted, Pubend):
            reason = f"the pubend {pubend} is best effort: it has no log to commit to"
            self._context.tell(client, Refused(request, reason))
            return None
        return hosted

    def _do(self, client: str, hosted: Pubend, call: Stage | CommitStaged | DropStaged) -> None:
        tell, number = self._context.tell, call.request

        def committed(outcome: Outcome) -> None:
            tell(client, _answer(number, outcome))

        match call:
            case Stage():
                self.staging.stage(hosted, call, lambda: tell(client, Staged(number)))
            case CommitStaged():
                self.staging.commit(hosted, call, committed)
            case DropStaged():
                self.staging.drop(call, lambda: tell(client, StagedDropped(number)))


def _answer(request: int, outcome: Outcome) -> StagedCommitted:
    record = outcome.record
    if record is None:
        return StagedCommitted(request, 0, 0, 0, repeated=True)
    return StagedCommitted(
        request, record.first, record.last, record.events, repeated=outcome.repeated
    )
