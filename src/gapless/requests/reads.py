"""The requests of clients that read a range of a log, of a pubend at any broker."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from gapless.content.filter import Filter
from gapless.core.context import Context, Timer
from gapless.core.errors import FilterError
from gapless.core.ids import PubendId
from gapless.core.limits import (
    READER_FILTERS_KEPT,
    READS_PER_CLIENT_MAX,
    READS_WAITING_PER_CLIENT_MAX,
)
from gapless.core.parameters import microseconds
from gapless.directory.announcements import KnownPubends
from gapless.directory.hosted import Hosted
from gapless.directory.tombstones import closed_reason
from gapless.messages.clients import RefusalCause, Refused
from gapless.messages.overlay import Quality
from gapless.messages.pubend_requests import ReadReply
from gapless.messages.reading import ReadLog, ReadPart
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
        self._reads: dict[str, dict[int, tuple[PendingRequest, Timer]]] = {}
        """The started reads of each client, by their numbers."""
        self._waiting: dict[str, deque[ReadLog]] = {}
        """The reads of each client that are not started yet, oldest first."""
        self._full: set[str] = set()
        """Clients for which too many bytes wait to be sent: their reads are not started."""
        self.handlers: Mapping[type, Callable[[str, Any], None]] = {ReadLog: self._handle}

    def _handle(self, client: str, request: ReadLog) -> None:
        reason = self._refusal_of(request)
        if self._announcements.is_closed(request.pubend):
            self._refuse_closed(client, request.request, request.pubend)
        elif reason is not None:
            self._context.notify(client, Refused(request.request, reason))
        elif len(self._waiting.get(client, ())) >= READS_WAITING_PER_CLIENT_MAX:
            self._context.mark("too many reads of a client")
            reason = (
                f"{READS_WAITING_PER_CLIENT_MAX} reads of this client are not answered yet; "
                "wait for their replies"
            )
            refused = Refused(request.request, reason, RefusalCause.UNAVAILABLE)
            self._context.notify(client, refused)
        else:
            self._stop(client, request.request)
            self._waiting.setdefault(client, deque()).append(request)
            self._start_waiting(client)

    def _start_waiting(self, client: str) -> None:
        """Start the reads of a client that wait, as far as its limits allow."""
        waiting = self._waiting.get(client, ())
        while waiting and client not in self._full:
            if len(self._reads.get(client, ())) >= READS_PER_CLIENT_MAX:
                return
            self._read(client, waiting.popleft())
        if not waiting:
            self._waiting.pop(client, None)

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

    def _refuse_closed(self, client: str, request: int, pubend: PubendId) -> None:
        refused = Refused(request, closed_reason(pubend), RefusalCause.CLOSED)
        self._context.notify(client, refused)

    def _read(self, client: str, call: ReadLog) -> None:
        if self._announcements.is_closed(call.pubend):  # it was closed while the read waited
            self._refuse_closed(client, call.request, call.pubend)
            return

        def read(reply: ReadReply) -> None:
            self._stop(client, call.request)
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
            self._start_waiting(client)

        def refuse(reason: str, cause: RefusalCause = RefusalCause.OTHER) -> None:
            self._stop(client, call.request)
            self._context.notify(client, Refused(call.request, reason, cause))
            self._start_waiting(client)

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
        self._reads.setdefault(client, {})[call.request] = (pending_request, timer)

    def pubend_ended(self, pubend: PubendId) -> None:
        """Refuse the reads of a pubend that is a tombstone (RS-34)."""
        for client, started in [*self._reads.items()]:
            for number, (pending_request, _) in [*started.items()]:
                if pending_request.pubend == pubend:
                    self._stop(client, number)
                    self._refuse_closed(client, number, pubend)
            self._start_waiting(client)

    def client_full(self, client: str) -> None:
        """Start no more reads of a client, because too many bytes wait to be sent to it."""
        self._full.add(client)

    def client_drained(self, client: str) -> None:
        """Start reads of a client again."""
        self._full.discard(client)
        self._start_waiting(client)

    def client_down(self, client: str) -> None:
        """Cancel the reads of a client that has disconnected."""
        self._full.discard(client)
        self._waiting.pop(client, None)
        for request in [*self._reads.get(client, ())]:
            self._stop(client, request)

    def _stop(self, client: str, request: int) -> None:
        """Cancel a read, which is answered or replaced by a repetition under its number."""
        started = self._reads.get(client, {})
        found = started.pop(request, None)
        if found is not None:
            found[0].cancel()
            found[1].cancel()
        if not started:
            self._reads.pop(client, None)
        waiting = self._waiting.get(client)
        if waiting and any(each.request == request for each in waiting):
            self._waiting[client] = deque(each for each in waiting if each.request != request)
