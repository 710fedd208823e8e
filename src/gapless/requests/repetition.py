"""Repetition: a request is sent again under a new id until it is answered or cancelled.

The id is new each time, because it selects the hop if there is a choice. The ids of the attempts of
one request are consecutive modulo a small number. So requests that are repeated alternately cannot
each get the same dead hop for ever.

A reply to any attempt is accepted, because a request may be served twice. Ids grow from incarnation
to incarnation, so a reply to an earlier incarnation is not accepted. The states of a request are in
:mod:`.pending_request_state`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Generic, Protocol, TypeVar

from gapless.core.context import Context, Timer
from gapless.core.limits import REQUEST_ATTEMPTS_KEPT
from gapless.core.parameters import microseconds
from gapless.requests.pending_request_state import (
    NEXT_STATES,
    PendingRequestInput,
    PendingRequestState,
)

__all__ = ["RepeatedRequest", "RepeatedRequests", "RequestEnder"]

_TURNS: Final = 12
"""Ids of attempts are consecutive modulo this number, so they try all of 2, 3, 4, 6 or 12 hops."""

_IDS_PER_INCARNATION: Final = 1_000
"""The least distance between the ids of two incarnations. Incarnations are microseconds unless the
clock was set back; times this they still fit into 63 bits."""


class RequestEnder(Protocol):
    """Ends requests."""

    def end(self, pending: Any) -> None:
        """End a request."""


class RepeatedRequest:
    """One request of this broker, until it is answered or cancelled."""

    def __init__(
        self,
        requests: RequestEnder,
        number: int,
        state: PendingRequestState,
        made: Callable[[int], Any],
        longest_pause_us: int,
    ) -> None:
        self._requests = requests
        self.number = number
        self.state = state
        self.made = made
        """Returns the request with an id."""
        self.longest_pause_us = longest_pause_us
        self.ids: list[int] = []
        """The ids of the attempts that may still be answered, the oldest first."""
        self.pause_us = 0
        self._turn = number
        """The id of the next attempt, modulo ``_TURNS``."""
        self._is_sent = False
        """Whether the last attempt was sent; kept while the request has no turn."""
        self._timer: Timer | None = None

    def cancel(self) -> None:
        """End the request without a callback. An attempt that was sent may still be served."""
        self._requests.end(self)

    @property
    def is_sent(self) -> bool:
        """Whether the last attempt was sent."""
        return self._is_sent

    @property
    def due(self) -> int:
        """The time of the next attempt."""
        assert self._timer is not None
        return self._timer.at

    def enter(self, cause: PendingRequestInput) -> None:
        """Change the state by the table."""
        assert (self.state, cause) in NEXT_STATES, f"{cause} in {self.state}"
        self.state = NEXT_STATES[self.state, cause]

    def attempted(self, *, sent: bool) -> None:
        """Note whether an attempt was sent."""
        self._is_sent = sent
        self.enter(PendingRequestInput.ATTEMPT_SENT if sent else PendingRequestInput.ATTEMPT_FAILED)

    def next_id(self, last_id: int) -> int:
        """Return the next id above ``last_id`` that is in turn modulo ``_TURNS``."""
        last_id += 1
        last_id += (self._turn - last_id) % _TURNS
        self._turn += 1
        return last_id

    def keep_id(self, request: int) -> int | None:
        """Accept replies to another attempt; return the oldest id if it is dropped for it."""
        self.ids.append(request)
        return self.ids.pop(0) if len(self.ids) > REQUEST_ATTEMPTS_KEPT else None

    def wait(self, timer: Timer) -> None:
        """Set the timer of the next attempt."""
        self._timer = timer

    def stop_waiting(self) -> None:
        """Cancel the timer."""
        assert self._timer is not None
        self._timer.cancel()

    def set_pause(self, pause_us: int) -> None:
        """Set the pause before the next attempt."""
        self.pause_us = pause_us

    def lengthen_pause(self) -> None:
        """Double the pause before the next attempt, up to the longest one."""
        self.pause_us = max(self.pause_us, min(2 * self.pause_us, self.longest_pause_us))


R = TypeVar("R", bound=RepeatedRequest)


class RepeatedRequests(Generic[R]):
    """The requests of one kind that this broker repeats."""

    def __init__(self, context: Context, send: Callable[[Any], bool]) -> None:
        """``send`` sends an attempt; it returns False if there is no route now."""
        self._context = context
        self._send = send
        self._last_id = context.identity.incarnation * _IDS_PER_INCARNATION
        self._count = 0
        self._active: dict[int, R] = {}
        """By number, so in the order of creation."""
        self._by_id: dict[int, R] = {}

    def session_opened(self) -> None:
        """A peer session has opened: send requests that had no route, repeat the others sooner."""
        first = self._first_pause_us
        for pending in list(self._active.values()):
            pending.set_pause(first)
            if not pending.is_sent:
                pending.stop_waiting()
                self._attempt(pending)
            elif pending.due > self._context.now + first:
                pending.stop_waiting()
                self._wait(pending)

    def is_awaited(self, request: int) -> bool:
        """Return whether a reply to an attempt is still accepted."""
        return request in self._by_id

    def statistics(self) -> dict[str, int]:
        """Return the number of active requests, and of attempts that may still be answered."""
        return {"active": len(self._active), "ids": len(self._by_id)}

    def end(self, pending: R) -> None:
        """End a request."""
        pending.enter(PendingRequestInput.END)
        self._remove(pending)

    # --- attempts ----------------------------------------------------------------------------

    def _next_number(self) -> int:
        self._count += 1
        return self._count

    @property
    def _first_pause_us(self) -> int:
        return microseconds(ms=self._context.parameters.attach_timeout_ms)

    def _start(self, pending: R) -> None:
        self._active[pending.number] = pending
        pending.set_pause(self._first_pause_us)
        self._attempt(pending)

    def _attempt(self, pending: R) -> None:
        """Send a request under a new id, and start its timer."""
        self._last_id = pending.next_id(self._last_id)
        request = pending.made(self._last_id)
        sent = self._send(request)
        pending.attempted(sent=sent)
        if sent:
            self._remember(pending, request.request)
        self._wait(pending)

    def _remember(self, pending: R, request: int) -> None:
        self._by_id[request] = pending
        forgotten = pending.keep_id(request)
        if forgotten is not None:
            del self._by_id[forgotten]

    def _wait(self, pending: R) -> None:
        pending.wait(self._context.call_later(pending.pause_us, lambda: self._repeat(pending)))

    def _repeat(self, pending: R) -> None:
        self._context.mark("request repeated")
        pending.lengthen_pause()
        pending.enter(PendingRequestInput.TIMER)
        self._resume(pending)

    def _resume(self, pending: R) -> None:
        """Make the next attempt of a request that was not answered in time."""
        self._attempt(pending)

    def _remove(self, pending: R) -> bool:
        """Forget a request that has ended; return whether it was active."""
        if self._active.pop(pending.number, None) is None:
            return False
        pending.stop_waiting()
        for each in pending.ids:
            del self._by_id[each]
        return True
