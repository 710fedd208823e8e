"""The overlay as the Spark face sees it: which pubends there are, where their logs are, what they hold.

Everything here waits. A connection is made when it is needed, one for each set of addresses, and is
made again by the client whenever it is lost.
"""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import Future
from typing import Any, Final
from uuid import uuid4

import msgspec

from gapless.client import Backoff, Session, connect
from gapless.client.portal import Portal
from gapless.client.position import pubend_id
from gapless.core.errors import (
    DeadlineError,
    GaplessError,
    RefusedError,
    UnavailableError,
    UsageError,
)
from gapless.core.ids import PubendId
from gapless.core.ticks import Tick
from gapless.messages.clients import ReadLog, ReadPart
from gapless.messages.operating import ListPubends, PubendList, PubendState
from gapless.messages.overlay import Quality
from gapless.messages.streams import ReadForm

__all__ = ["FOREVER", "Caller", "Extent", "Network"]

FOREVER: Final = 2**62
"""Above every tick."""

_BACKOFF: Final = Backoff(first_s=0.05, longest_s=2.0)
_PAUSE_S: Final = 0.1
"""Between two tries where a broker says that something is not in reach now."""

_LOOK_S: Final = 2.0
"""How long an address may take to say which broker is there."""

_LOOK_AGAIN_S: Final = 60.0
"""After so long an address is tried again at which nobody was."""

Where = tuple[str, ...]


class Extent(msgspec.Struct, frozen=True):
    """How far a log goes."""

    gone: Tick
    """Up to here events that match may be gone."""
    top: Tick
    """Up to here everything is decided; nothing will ever be added below."""


class Caller:
    """A session with some brokers, in a thread of its own, whose calls wait."""

    def __init__(self, where: Where, deadline_s: float) -> None:
        self._where = where
        self._deadline_s = deadline_s
        self._portal = Portal()
        self._session: Session | None = None
        try:
            self._session = self._portal.run(self._opened())
        except BaseException:
            self.close()
            raise

    async def _opened(self) -> Session:
        session = connect(
            self._where,
            name=f"spark-{uuid4().hex[:8]}",
            deadline=self._deadline_s,
            connect_deadline=self._deadline_s,
            backoff=_BACKOFF,
        )
        await session.open()
        return session

    @property
    def broker(self) -> str | None:
        """Which broker is at the other end, if one is now."""
        return None if self._session is None else self._session.broker

    def close(self) -> None:
        """End the session and its thread."""
        try:
            if self._session is not None:
                self._portal.run(self._session.close())
        finally:
            self._portal.stop()

    def ask(self, message: Any, *, changes: bool = False) -> Any:
        """Send a request and wait for its answer."""
        assert self._session is not None
        return self._portal.run(self._session.request(message, changes=changes))

    def start_read(self, request: ReadLog, *, patient: bool) -> Future[ReadPart]:
        """Ask for a part of a log; return what can be waited for.

        One who is patient takes no refusal before the deadline: what he asks for has been there.
        """
        return self._portal.start(self._part(request, patient=patient))

    async def _part(self, request: ReadLog, *, patient: bool) -> ReadPart:
        assert self._session is not None
        refused: RefusedError | None = None
        try:
            async with asyncio.timeout(self._deadline_s):
                while True:
                    try:
                        answer = await self._session.request(request, deadline=None, changes=False)
                    except RefusedError as error:
                        if not (patient or isinstance(error, UnavailableError)):
                            raise
                        refused = error
                        await asyncio.sleep(_PAUSE_S)
                    else:
                        assert isinstance(answer, ReadPart)
                        return answer
        except TimeoutError:
            if refused is not None:
                raise refused from None
            raise DeadlineError(
                f"the log of {request.pubend} did not answer from tick {request.low} on within "
                f"{self._deadline_s:g} s: no broker at {', '.join(self._where)}"
            ) from None


class Network:
    """Asks brokers on behalf of the driver."""

    def __init__(self, servers: Where, deadline_s: float) -> None:
        self._servers = servers
        self._deadline_s = deadline_s
        self._callers: dict[Where, Caller] = {}
        self._brokers: dict[str, str] = {}
        """The address of each broker that was seen."""
        self._looked_at: dict[str, float] = {}
        self._homes: dict[str, Where] = {}

    def close(self) -> None:
        """End all connections."""
        while self._callers:
            self._callers.popitem()[1].close()

    def caller(self, where: Where | None = None) -> Caller:
        """Return a connection to one of some addresses, by default to any of the overlay."""
        key = where or self._servers
        if key not in self._callers:
            self._callers[key] = Caller(key, self._deadline_s)
        return self._callers[key]

    # --- pubends -------------------------------------------------------------------------------

    def pubends(self) -> dict[str, Where]:
        """Return the pubends that have logs, each with the addresses to read it from."""
        self._look_around()
        found = {}
        for state in self._listed():
            if state.quality is Quality.GUARANTEED:
                home = self._brokers.get(state.broker)
                found[str(state.pubend)] = (home,) if home is not None else self._servers
        self._homes |= found
        return found

    def _listed(self) -> list[PubendState]:
        found: list[PubendState] = []
        after: PubendId | None = None
        while True:
            answer = self.caller().ask(ListPubends(0, after))
            assert isinstance(answer, PubendList)
            found += answer.entries
            if not answer.more:
                return found
            after = answer.entries[-1].pubend

    def _look_around(self) -> None:
        """Find out which broker is at each address; what does not answer is tried again later."""
        known, now = set(self._brokers.values()), time.monotonic()
        if len(self._servers) == 1:
            broker = self.caller().broker
            if broker is not None:
                self._brokers[broker] = self._servers[0]
            return
        for server in self._servers:
            looked = self._looked_at.get(server)
            if server in known or (looked is not None and now - looked < _LOOK_AGAIN_S):
                continue
            self._looked_at[server] = now
            try:
                caller = Caller((server,), min(_LOOK_S, self._deadline_s))
            except GaplessError:
                continue
            broker = caller.broker
            caller.close()
            if broker is not None:
                self._brokers[broker] = server

    def home(self, pubend: str) -> Where:
        """Return the addresses to read a pubend from."""
        if pubend not in self._homes:
            self.pubends()
        return self._homes.get(pubend, self._servers)

    def chosen(self, wanted: tuple[str, ...]) -> dict[str, Where]:
        """Return the wanted pubends, or all; raise if one that is wanted has no log."""
        known = self.pubends()
        if not wanted:
            return known
        missing = [name for name in wanted if name not in known]
        if missing:
            have = ", ".join(sorted(known)) or "none"
            raise UsageError(
                f"option pubends: there is no log of {', '.join(missing)}; the overlay has {have}"
            )
        return {name: known[name] for name in wanted}

    # --- logs ----------------------------------------------------------------------------------

    def part(
        self,
        pubend: str,
        wanted: str,
        low: Tick,
        high: Tick,
        *,
        form: ReadForm,
        bytes_max: int = 0,
    ) -> ReadPart:
        """Return what matches from a tick on, as far as one answer goes.

        A broker that was started just now does not know all pubends yet: one that was listed before
        is waited for.
        """
        caller = self.caller(self.home(pubend))
        request = ReadLog(0, pubend_id(pubend), wanted, low, high, bytes_max, form)
        return caller.start_read(request, patient=pubend in self._homes).result()

    def extent(self, pubend: str, wanted: str) -> Extent:
        """Return how far the log of a pubend goes now, for who wants what matches a filter."""
        part = self.part(pubend, wanted, 1, 1, form=ReadForm.TICKS)
        return Extent(part.released, max(part.top, part.released))
