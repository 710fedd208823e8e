"""Simulated publishers: idempotent sequences, resent in order after every loss (R27, R28)."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final

from gapless.content.values import Value
from gapless.core.ids import PubendId
from gapless.messages.clients import (
    OpenPubend,
    OpenPublisher,
    PubendOpened,
    Publish,
    Published,
    PublisherOpened,
    RefusalCause,
    Refused,
)
from gapless.messages.overlay import Quality
from gapless_lab.sim.clients import SimulatedClient

if TYPE_CHECKING:
    from gapless_lab.sim.oracle import Oracle
    from gapless_lab.sim.world import SimulatedHost, World

__all__ = ["PubendPlan", "SimulatedBatch", "SimulatedPublisher"]


REMEMBERED_MAX: Final = 200
"""The number of answered batches that a publisher keeps for repetition, spread over all that it
sent.
"""

FENCED_MAX: Final = 10
"""The number of times a publisher reopens its session before a refusal counts as a violation."""


class PubendPlan:
    """A pubend of the workload: its broker and its advertisement."""

    __slots__ = ("advertisement", "host", "name", "quality")

    def __init__(
        self, name: str, host: SimulatedHost, advertisement: str, quality: Quality
    ) -> None:
        self.name = name
        self.host = host
        self.advertisement = advertisement
        self.quality = quality


class SimulatedBatch:
    """Publications that are sent, answered and resent together."""

    __slots__ = ("events", "first", "outside", "request", "sent")

    def __init__(
        self, request: int, first: int, events: tuple[tuple[dict[str, Value], bytes], ...]
    ) -> None:
        self.request = request
        self.first = first
        self.events = events
        self.sent = False
        """Whether it was sent in the present session."""
        self.outside = False
        """Whether it was sent while an event of it was outside the advertisement on disk."""


class SimulatedPublisher(SimulatedClient):
    """Publishes to one pubend, at its PHB."""

    def __init__(self, world: World, oracle: Oracle, name: str, plan: PubendPlan) -> None:
        super().__init__(world, oracle, name, plan.host)
        self.plan = plan
        self.pubend: PubendId | None = None
        self.pending: deque[SimulatedBatch] = deque()
        """Batches without a reply, in order of sequence."""
        self.over = False
        """Whether the pubend is closed and nothing is unanswered that could be answered."""
        self.ok = 0
        self.refused: list[int] = []
        """Sequences that were refused for good."""
        self._session: int | None = None
        self._window = 1
        self._sequence = 0
        self._last_ok = 0
        self._opening = 0
        self._fenced = 0
        """The number of consecutive refusals without a cause that the client knows."""
        self._answered: list[SimulatedBatch] = []
        self._repeated: dict[int, tuple[SimulatedBatch, int]] = {}
        """By request: a batch that was sent again after its reply, and the session."""

    # --- publishing --------------------------------------------------------------------------

    def publish(self, events: tuple[tuple[dict[str, Value], bytes], ...]) -> None:
        """Publish a batch, now or when a session opens."""
        if self.over:
            return
        batch = SimulatedBatch(self.next_request(), self._sequence + 1, events)
        self._sequence += len(events)
        self.pending.append(batch)
        self._register(batch)
        self._send()

    def _register(self, batch: SimulatedBatch) -> None:
        if self.pubend is not None:
            for sequence, event in enumerate(batch.events, batch.first):
                self.oracle.sent[self.pubend, self.name, sequence] = event

    def _send(self) -> None:
        """Send the batches that have not been sent, up to the window.

        The window is part of the reply to opening (R28): beyond it the broker may not know the
        outcome of a batch. :meth:`repeat` tests batches beyond it.
        """
        if self._session is None or self.pubend is None:
            return
        for in_flight, batch in enumerate(self.pending):
            if not batch.sent:
                if in_flight >= self._window:
                    return
                batch.sent = True
                batch.outside |= not self._is_advertised(batch)
                self.send_request(
                    Publish(
                        batch.request,
                        self.pubend,
                        self.name,
                        self._session,
                        batch.first,
                        batch.events,
                    )
                )

    # --- repetition and reopening ------------------------------------------------------------

    def repeat(self) -> None:
        """Send a batch again that was answered, perhaps long ago; its reply must be the same."""
        if self._session is None or self.pubend is None or not self._answered:
            return
        batch = self.random.choice(self._answered)
        request = self.next_request()
        self._repeated[request] = (batch, self._session)
        self.send_request(
            Publish(request, self.pubend, self.name, self._session, batch.first, batch.events)
        )
        if self.random.random() < 0.2:
            self._open_publisher()  # fences the repetition, perhaps half done

    def widen(self, advertisement: str) -> None:
        """Widen the advertisement; the session opens again after the reply."""
        self.plan.advertisement = f"({self.plan.advertisement}) OR ({advertisement})"
        if self._session is not None:
            self._open_pubend()

    def _repeat_refused(self, batch: SimulatedBatch, session: int, reason: str) -> None:
        """Check that a repetition is refused only if the log has released it (R27)."""
        assert self.pubend is not None
        stream = self.oracle.streams[self.pubend]
        ticks = [stream.logged[self.name, batch.first + each] for each in range(len(batch.events))]
        is_released = min(ticks) <= stream.released or self.oracle.is_corrupt(stream)
        if session == self._session and not is_released:
            name = f"{self.name}/{batch.first}"
            self.world.violate("refused", f"{name}, logged at {ticks}, sent again: {reason}")

    # --- the session -------------------------------------------------------------------------

    def connected(self) -> None:
        """Open the pubend first."""
        self._session = None
        if self.plan.quality is not Quality.GUARANTEED:
            self.pending.clear()  # without a log, sending again is not safe: the outcome is unknown
        self._repeated.clear()
        self._open_pubend()

    def _open_pubend(self) -> None:
        if self.pubend is not None and self.oracle.streams[self.pubend].sealed is not None:
            self._open_publisher()  # its plain name may give another pubend now (RS-34)
            return
        self._opening = self.next_request()
        plan = self.plan
        self.send_request(OpenPubend(self._opening, plan.name, plan.advertisement, plan.quality))

    def take(self, notice: Any) -> None:
        """Handle the reply to a request."""
        if isinstance(notice, PubendOpened):
            self._pubend_opened(notice.pubend)
        elif isinstance(notice, PublisherOpened):
            self._publisher_opened(notice)
        elif isinstance(notice, Published):
            self._published(notice)
        elif isinstance(notice, Refused):
            self._refused(notice)

    def _pubend_opened(self, pubend: PubendId) -> None:
        stream = self.oracle.streams.get(pubend)
        if stream is None or stream.broker != self.host.broker:
            self.world.violate("undurable", f"{self.name}: {pubend} is opened but not on disk")
        if self.pubend is None:
            self.pubend = pubend
            for batch in self.pending:
                self._register(batch)
        elif self.pubend != pubend:
            self.world.violate("undurable", f"{self.name}: {self.pubend} became {pubend}")
        self._open_publisher()

    def _open_publisher(self) -> None:
        assert self.pubend is not None
        self._session = None
        self._opening = self.next_request()
        self.send_request(OpenPublisher(self._opening, self.pubend, self.name))

    def _publisher_opened(self, notice: PublisherOpened) -> None:
        if notice.request != self._opening:
            return  # it was opened again meanwhile, and this session is fenced
        guaranteed = self.plan.quality is Quality.GUARANTEED
        if guaranteed and notice.last_sequence < self._last_ok:
            self.world.violate(
                "undurable",
                f"{self.name}: {self._last_ok} was acknowledged, "
                f"but the broker knows {notice.last_sequence}",
            )
        self._session = notice.session
        self._window = notice.window
        for batch in self.pending:
            batch.sent = False
        self._send()

    def _take_batch(self, request: int) -> SimulatedBatch | None:
        """Remove a batch from the pending ones."""
        for index, batch in enumerate(self.pending):
            if batch.request == request:
                del self.pending[index]
                return batch
        return None

    def _published(self, notice: Published) -> None:
        batch = self._take_batch(notice.request)
        again = self._repeated.pop(notice.request, None)
        if self.pubend is None:
            return
        if again is not None:
            self._check_ticks(again[0], notice)
        if batch is None:
            return
        self._send()
        self._fenced = 0
        self.ok += len(batch.events)
        self._last_ok = max(self._last_ok, batch.first + len(batch.events) - 1)
        if self.plan.quality is Quality.GUARANTEED:
            self._check_ticks(batch, notice)
            self._answered.append(batch)
            if len(self._answered) > REMEMBERED_MAX:
                del self._answered[self.random.randrange(REMEMBERED_MAX)]

    def _check_ticks(self, batch: SimulatedBatch, notice: Published) -> None:
        """Check that a batch is on disk at the ticks of the reply."""
        assert self.pubend is not None
        stream = self.oracle.streams[self.pubend]
        logged = tuple(
            stream.logged.get((self.name, batch.first + index))
            for index in range(len(batch.events))
        )
        if logged != notice.ticks:
            self.world.violate(
                "undurable",
                f"{self.name}/{batch.first}: acknowledged at {notice.ticks}, logged at {logged}",
            )

    def _refused(self, notice: Refused) -> None:
        if notice.request == self._opening and notice.cause is RefusalCause.CLOSED:
            self._closed()
            return
        if notice.request == self._opening:
            self.follow(notice)
            return
        again = self._repeated.pop(notice.request, None)
        if again is not None:
            self._repeat_refused(*again, notice.reason)
            return
        batch = next((each for each in self.pending if each.request == notice.request), None)
        if batch is None or self._session is None:
            return
        if self._has_cause(batch):
            self._take_batch(notice.request)
            self.refused += range(batch.first, batch.first + len(batch.events))
            self._send()
            self._check_not_logged()
        elif self._fenced < FENCED_MAX:
            # a request of an older connection arrived later and fenced this session (R28)
            self._fenced += 1
            self._open_publisher()
        else:
            name = f"{self.name}/{batch.first}"
            self.world.violate("refused", f"{name} without cause: {notice.reason}")

    def _closed(self) -> None:
        """The pubend is closed, and its broker knows no outcome of a batch (any more)."""
        self.over = True
        self.pending.clear()
        self.leave()

    def _has_cause(self, batch: SimulatedBatch) -> bool:
        """Return whether a batch may be refused for good."""
        stream = None if self.pubend is None else self.oracle.streams.get(self.pubend)
        if stream is None:
            return False
        if stream.is_closing:
            return True
        limited = "log_bytes_max" in self.world.options.limits
        # a broker notices only after a while that the corruption is gone
        return batch.outside or limited or self.oracle.was_corrupt(stream)

    def _is_advertised(self, batch: SimulatedBatch) -> bool:
        """Return whether all events of a batch match the present advertisement."""
        stream = None if self.pubend is None else self.oracle.streams.get(self.pubend)
        if stream is None:
            return True
        advertised = self.oracle.filter(stream.advertisement)
        return all(advertised.matches(attributes) for attributes, _ in batch.events)

    def _check_not_logged(self) -> None:
        """Check that no refused event is in the log."""
        stream = None if self.pubend is None else self.oracle.streams.get(self.pubend)
        for sequence in self.refused:
            if stream is not None and (self.name, sequence) in stream.logged:
                self.world.violate("refused", f"{self.name}/{sequence} was refused, but is logged")

    # --- the end -----------------------------------------------------------------------------

    def unfinished(self) -> list[str]:
        """Return the batches without a reply."""
        stream = self.oracle.stream_at(self.host, self.plan.name)
        if stream is not None and self.oracle.is_corrupt(stream):
            return []
        if self.over:
            return []
        if self.pubend is None:
            return [f"{self.name}: {self.plan.name} is not open"]
        self._check_not_logged()
        return [f"{self.name}: {batch.first} is not answered" for batch in self.pending]
