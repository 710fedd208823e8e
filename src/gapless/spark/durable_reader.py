"""A named reader: logs are held for it from the committed position on.

It is a durable subscription that never receives an event. It is created at the first server, and
found by its name wherever it is hosted. A commit moves it by a seek, as an operator would. A
durable subscription without a client expires, so the driver subscribes from time to time and
disconnects at once.

A subscription includes all pubends that its filter can match. With every commit it is moved to the
current end of the pubends that the query does not read. It is not moved for a pubend that is only
new to the query, because the query will read it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from gapless.client.position import Position
from gapless.core.errors import GaplessError
from gapless.core.ticks import Tick
from gapless.messages.clients import StartKind, StartPoint, Subscribe, Subscribed
from gapless.messages.operating import (
    CursorState,
    GetSubscription,
    SeekDurable,
    SubscriptionReply,
)
from gapless.spark.network import LOG, Caller, OverlayClient

__all__ = ["DurableReader"]

_RENEW_S: Final = 3_600.0
"""How often the driver subscribes. The subscription expires after a week."""


class DurableReader:
    """Holds logs for one query."""

    def __init__(
        self,
        network: OverlayClient,
        server: str,
        name: str,
        filter_text: str,
        pubends: Sequence[str] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._network = network
        self._server = server
        self._name = name
        self._filter_text = filter_text
        self._pubends = pubends
        """The pubends of the query; empty: all, including new ones."""
        self._clock = clock
        self._renewed: float | None = None

    def _caller(self) -> Caller:
        return self._network.caller((self._server,))

    def _at_host(self, message: Any, *, changes: bool = False) -> Any:
        """Send a request to the broker that hosts the reader; None if none hosts it."""
        return self._caller().request_at_host(self._name, message, changes=changes)

    def _cursors(self) -> dict[str, CursorState] | None:
        """Return the cursors of the reader by pubend; None if it does not exist."""
        found: dict[str, CursorState] = {}
        after = None
        while True:
            shown = self._at_host(GetSubscription(0, self._name, after, durable=True))
            if shown is None:
                return None
            assert isinstance(shown, SubscriptionReply)
            entry = shown.entry
            found.update({str(each.pubend): each for each in entry.cursors})
            if not entry.cursors_omitted or not entry.cursors:
                return found
            after = entry.cursors[-1].pubend

    def position(self) -> dict[str, Tick] | None:
        """Return the committed position; None if the reader does not exist yet."""
        cursors = self._cursors()
        if cursors is None:
            return None
        return {name: each.acked for name, each in cursors.items() if each.pending_reason is None}

    def keep(self, positions: Mapping[str, Tick]) -> None:
        """Create the reader at a position, or renew it before it expires."""
        now = self._clock()
        if self._renewed is None:
            self._subscribe(positions)
        elif now - self._renewed >= _RENEW_S:
            try:
                self._subscribe(positions)
            except GaplessError as error:
                LOG.warning("reader %s: not renewed, so it may expire: %s", self._name, error)
        else:
            return
        self._renewed = now

    def _subscribe(self, positions: Mapping[str, Tick]) -> None:
        cursors = self._cursors()
        start = StartPoint()  # keep its position
        if cursors is None:
            start = StartPoint(StartKind.POSITION, Position(positions).as_tuple())
        request = Subscribe(0, self._name, self._filter_text, durable=True, start=start, credit=0)
        answer = self._at_host(request, changes=True)
        if answer is None:
            answer = self._caller().request(request, changes=True)
        assert isinstance(answer, Subscribed)
        # a seek to its own position disconnects it from this client: nothing is sent
        cursors = self._cursors() or {}
        self._seek({name: each.acked for name, each in cursors.items()} | self._omitted(cursors))

    def commit(self, positions: Mapping[str, Tick]) -> None:
        """Release logs up to a position; a failure is only logged."""
        try:
            self.keep(positions)
            self._seek({**self._omitted(self._cursors() or {}), **positions})
        except GaplessError as error:
            LOG.warning("reader %s: logs are kept longer than needed: %s", self._name, error)

    def _omitted(self, cursors: Mapping[str, CursorState]) -> dict[str, Tick]:
        """Return the horizons of pubends that the query does not read: it needs nothing of them."""
        return {
            name: each.horizon
            for name, each in cursors.items()
            if self._pubends and name not in self._pubends and each.horizon is not None
        }

    def _seek(self, positions: Mapping[str, Tick]) -> None:
        """Move the reader forward."""
        cursors = self._cursors() or {}
        ahead = {
            name: tick
            for name, tick in positions.items()
            if name in cursors and tick >= cursors[name].acked
        }
        start = StartPoint(StartKind.POSITION, Position(ahead).as_tuple())
        self._at_host(SeekDurable(0, self._name, start, force=True), changes=True)
