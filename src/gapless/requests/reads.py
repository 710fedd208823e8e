"""The requests of clients that read a range of a log, of a pubend at any broker."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from gapless.content.filter import Filter
from gapless.core.context import Context, Timer
from gapless.core.errors import FilterError
from gapless.core.limits import READER_FILTERS_KEPT
from gapless.core.parameters import microseconds
from gapless.directory.announcements import KnownPubends
from gapless.directory.hosted import Hosted
from gapless.messages.clients import ReadLog, ReadPart, RefusalCause, Refused
from gapless.messages.overlay import Quality
from gapless.messages.pubend_requests import ReadReply
from gapless.requests.carrier import PendingRequest, PubendRequests

__all__ = ["ReadCalls"]


@lru_cache(maxsize=READER_FILTERS_KEPT)
def _normal(text: str) -> str:
    """Return the normal form of a filter; raise FilterError if the text is not a filter."""
    return str(Filter(text))


class ReadCalls:
    """The unanswered reads of clients."""

    def __init__(
        self,
        context: Context,
        requests: PubendRequests,
        hosted: Hosted,
        announcements: KnownPubends,
    ) -> None:
        self._context = context
        self._requests = requests
        self._hosted = hosted
        self._announcements = announcements
        self._reads: dict[tuple[str, int], tuple[PendingRequest, Timer]] = {}
        self.handlers: Mapping[type, Callable[[str, Any], None]] = {ReadLog: self._handle}

    def _handle(self, client: str, request: ReadLog) -> None:
        reason = self._refusal_of(request)
        if reason is not None:
            self._context.notify(client, Refused(request.request, reason))
        else:
            self._read(client, request)

    def _refusal_of(self, call: ReadLog) -> str | None:
        try:
            _normal(call.filter)
        except FilterError as error:
            return str(error)
        corruption = self._hosted.corrupt.get(call.pubend)
        if corruption is not None:
            return f"the pubend {call.pubend} could not be restored: {corruption}"
        known = self._announcements.get(call.pubend)
        if known is None:
            same = ", ".join(map(str, self._announcements.pubends_named(call.pubend.name)))
            others = f", but {same}" if same else ""
            return f"the pubend {call.pubend} is not known at this broker{others}"
        if known.properties.quality is Quality.BEST_EFFORT:
            return f"the pubend {call.pubend} is best effort and has no log to read"
        if call.low > call.high:
            return f"[{call.low}, {call.high}] is not a valid range"
        return None

    def _read(self, client: str, call: ReadLog) -> None:
        key = (client, call.request)
        self._stop(key)

        def read(reply: ReadReply) -> None:
            self._stop(key)
            publications = tuple(
                each for knowledge in reply.ranges for each in knowledge.publications
            )
            part = ReadPart(
                call.request,
                publications,
                reply.done,
                reply.top,
                reply.last_released_match,
                reply.rows,
            )
            self._context.notify(client, part)

        def refuse(reason: str, cause: RefusalCause = RefusalCause.OTHER) -> None:
            self._stop(key)
            self._context.notify(client, Refused(call.request, reason, cause))

        def give_up() -> None:
            reason = f"the broker of {call.pubend} cannot be reached now; retry later"
            refuse(reason, RefusalCause.UNAVAILABLE)

        def fault(reason: str) -> None:
            refuse(f"the log of {call.pubend} cannot be read from {call.low} on: {reason}")

        timer = self._context.call_later(
            2 * microseconds(ms=self._context.parameters.retry_max_ms), give_up
        )
        pending_request = self._requests.read(
            call.pubend,
            _normal(call.filter),
            max(0, call.low),
            call.high,
            log_hold=None,
            then=read,
            fault=fault,
            bytes_max=call.bytes_max,
            form=call.form,
        )
        self._reads[key] = (pending_request, timer)

    def client_down(self, client: str) -> None:
        """Cancel the reads of a client that has disconnected."""
        for key in [key for key in self._reads if key[0] == client]:
            self._stop(key)

    def _stop(self, key: tuple[str, int]) -> None:
        found = self._reads.pop(key, None)
        if found is not None:
            found[0].cancel()
            found[1].cancel()
