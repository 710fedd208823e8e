"""Simulated clients that close pubends, and repeat that until they are tombstones (RS-32, RS-33)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gapless.messages.clients import RefusalCause, Refused
from gapless.messages.closing import CloseMode, ClosePubend, ClosePubendReply, ClosingState
from gapless_lab.sim.clients import SimulatedClient
from gapless_lab.sim.oracle import PublishedStream

if TYPE_CHECKING:
    from gapless_lab.sim.oracle import Oracle
    from gapless_lab.sim.world import SimulatedHost, World

__all__ = ["SimulatedCloser"]

PAUSE_US = 100_000
"""The pause before the state of a pubend is requested again."""


class SimulatedCloser(SimulatedClient):
    """Closes one pubend, from any broker."""

    def __init__(
        self,
        world: World,
        oracle: Oracle,
        name: str,
        host: SimulatedHost,
        *,
        stream: PublishedStream,
        mode: CloseMode,
    ) -> None:
        super().__init__(world, oracle, name, host)
        self.stream = stream
        self.done = False
        self._mode = mode
        self._request = 0

    def connected(self) -> None:
        """Close the pubend, perhaps again."""
        self._close()

    def hurry(self) -> None:
        """Let the retention not count from now on: the run ends before it does."""
        self._mode = max(self._mode, CloseMode.DISCARD_HISTORY)

    def _close(self) -> None:
        if not self.done:
            self._request = self.next_request()
            self.stream.is_closing = True
            if self._mode is CloseMode.NOW and self.connection is not None:
                self.stream.may_give_up = True
            self.send_request(ClosePubend(self._request, self.stream.pubend, self._mode))

    def take(self, notice: Any) -> None:
        """Check the reply, which promises what is on disk."""
        if isinstance(notice, ClosePubendReply) and notice.request == self._request:
            self._check(notice)
            if notice.state is ClosingState.CLOSED:
                self.done = True
                self.leave()
            else:
                self.world.after(PAUSE_US, self._close)
        elif isinstance(notice, Refused) and notice.request == self._request:
            if notice.cause is RefusalCause.WRONG_BROKER:
                self.follow(notice)
            else:
                # a broker that has not heard of the pubend; the broker of the pubend knows it
                self.host = self.world.hosts[self.stream.broker]
                self.drop(disconnected_us=50_000)

    def _check(self, reply: ClosePubendReply) -> None:
        stream, name = self.stream, f"{self.name}: {reply.pubend}"
        if not stream.guaranteed:
            return
        if stream.sealed != reply.last:
            self.world.violate("R-10", f"{name} ends at {stream.sealed}, not at {reply.last}")
        if reply.state is ClosingState.CLOSED and not stream.closed:
            self.world.violate("R-10", f"{name} is no tombstone")

    def unfinished(self) -> list[str]:
        """Return a line if the pubend is not closed."""
        if self.done or self.oracle.was_corrupt(self.stream):
            return []
        return [f"{self.name}: {self.stream.pubend} is not closed"]
