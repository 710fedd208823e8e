"""The overlay for the Spark driver: which pubends there are, where their logs are, and their
extents.

All calls block. A connection is opened when it is needed, one per set of addresses, and the client
re-establishes it when it is lost.

A broker knows its own pubends from its disk at once. It learns of other pubends when it reaches
their brokers. So a broker that was just started does not list all pubends, and it is unknown which
ones are missing. The lists of all named servers together are complete, as far as they answer. A
broker that does not answer is *unreachable*: then a query waits for a missing pubend that it names,
and a query for all pubends logs the unreachable brokers.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection
from concurrent.futures import Future
from typing import Any, Final
from uuid import uuid4

import msgspec

from gapless.client import Backoff, Session, connect
from gapless.client.credentials import Credentials
from gapless.client.loop_thread import EventLoopThread
from gapless.client.position import pubend_id
from gapless.core.errors import (
    AuthenticationError,
    DeadlineError,
    GaplessError,
    PubendClosedError,
    RefusedError,
    UnavailableError,
    UsageError,
)
from gapless.core.ids import PubendId
from gapless.core.ticks import Tick
from gapless.messages.operating import (
    GetTopology,
    ListPubends,
    PubendList,
    PubendState,
    TopologyReply,
)
from gapless.messages.overlay import Quality
from gapless.messages.reading import ReadLog, ReadPart
from gapless.messages.streams import ReadForm

__all__ = ["FOREVER", "LOG", "Caller", "Extent", "OverlayClient"]

LOG = logging.getLogger("gapless.spark")

FOREVER: Final = 2**62
"""Above every tick."""

_BACKOFF: Final = Backoff(first_s=0.05, longest_s=2.0)
_PAUSE_S: Final = 0.1
"""Between two attempts, if a broker reports that something is unavailable."""

_LOOK_S: Final = 2.0
"""How long an address may take to report its broker."""

_LOOK_AGAIN_S: Final = 60.0
"""After so long an address without an answer is tried again."""

_SETTLE_S: Final = 2.0
"""After so long a broker that was just started knows the pubends of the brokers that it reaches."""

_STUCK_S: Final = 5.0
"""After so long without a reply the location of a log is queried again."""

Where = tuple[str, ...]


class Extent(msgspec.Struct, frozen=True):
    """The extent of a log."""

    released: Tick
    """The tick up to which matching events may be released."""
    top: Tick
    """The tick up to which the log is final."""


class Caller:
    """A session with some brokers, in a thread of its own, with blocking calls."""

    def __init__(
        self,
        where: Where,
        deadline_s: float,
        credentials: Credentials,
        *,
        connect_s: float | None = None,
    ) -> None:
        self._where = where
        self._credentials = credentials
        self._deadline_s = deadline_s
        self._connect_s = deadline_s if connect_s is None else connect_s
        self._loop_thread = EventLoopThread()
        self._session: Session | None = None
        try:
            self._session = self._loop_thread.run(self._opened())
        except BaseException:
            self.close()
            raise

    async def _opened(self) -> Session:
        session = connect(
            self._where,
            name=f"spark-{uuid4().hex[:8]}",
            deadline_s=self._deadline_s,
            connect_deadline_s=self._connect_s,
            backoff=_BACKOFF,
            token=self._credentials.token or None,
            token_file=self._credentials.token_file or None,
        )
        await session.open()
        return session

    @property
    def broker(self) -> str | None:
        """The broker at the other end, or None."""
        return None if self._session is None else self._session.broker

    def close(self) -> None:
        """Close the session and its thread."""
        try:
            if self._session is not None:
                self._loop_thread.run(self._session.close())
        finally:
            self._loop_thread.stop()

    def request(self, message: Any, *, changes: bool = False, within_s: float | None = None) -> Any:
        """Send a request and wait for its reply, up to the deadline or another given time."""
        assert self._session is not None
        deadline = self._deadline_s if within_s is None else within_s
        return self._loop_thread.run(
            self._session.request(message, deadline_s=deadline, changes=changes)
        )

    def request_at_host(self, durable: str, message: Any, *, changes: bool = False) -> Any:
        """Send a request to the broker that hosts a durable subscription; None if none hosts it."""
        assert self._session is not None
        return self._loop_thread.run(
            self._session.request_at_host(durable, message, changes=changes)
        )

    def start_read(self, request: ReadLog, *, retry: bool, within_s: float) -> Future[ReadPart]:
        """Request a part of a log; return a future.

        With ``retry`` a refused request is repeated until the timeout, because the pubend is known to
        exist.
        """
        return self._loop_thread.start(self._part(request, retry=retry, within_s=within_s))

    async def _part(self, request: ReadLog, *, retry: bool, within_s: float) -> ReadPart:
        assert self._session is not None
        refused: RefusedError | None = None
        try:
            async with asyncio.timeout(within_s):
                while True:
                    try:
                        answer = await self._session.request(
                            request, deadline_s=None, changes=False
                        )
                    except RefusedError as error:
                        if not (retry or isinstance(error, UnavailableError)):
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
                f"the log of {request.pubend} was not read from tick {request.low} within "
                f"{self._deadline_s:g} s: no broker at {', '.join(self._where)}"
            ) from None


class OverlayClient:
    """Calls brokers for the driver."""

    def __init__(
        self,
        servers: Where,
        deadline_s: float,
        credentials: Credentials = Credentials(),  # noqa: B008 - it does not change
    ) -> None:
        self._servers = servers
        self._credentials = credentials
        self._deadline_s = deadline_s
        self._callers: dict[Where, Caller] = {}
        self._brokers: dict[str, str] = {}
        """The address of each broker that was seen."""
        self._answered: dict[str, str] = {}
        """The broker at each server that answered last time."""
        self._listed: list[PubendState] = []
        self._warned_of: list[str] = []
        self._looked_at: dict[str, float] = {}
        self._phb_addresses: dict[str, Where] = {}

    def close(self) -> None:
        """Close all connections."""
        while self._callers:
            self._callers.popitem()[1].close()

    def caller(self, where: Where | None = None) -> Caller:
        """Return a connection to one of some addresses, by default of any server."""
        key = where or self._servers
        if key not in self._callers:
            self._callers[key] = Caller(key, self._deadline_s, self._credentials)
        return self._callers[key]

    # --- pubends -------------------------------------------------------------------------------

    def pubends(self) -> dict[str, Where]:
        """Return the pubends with logs, each with the addresses to read it from.

        They are the union of the lists of all servers that answer. A broker's list is authoritative
        for its own pubends.
        """
        self.caller()  # one server has to answer, before the deadline
        states: dict[str, PubendState] = {}
        own: dict[str, set[str]] = {}
        self._answered = {}
        for server in self._servers:
            listed = self._listed_at(server)
            if listed is None:
                continue
            broker, entries = listed
            self._answered[server] = broker
            own[broker] = {str(each.pubend) for each in entries if each.broker == broker}
            for each in entries:
                known = states.get(str(each.pubend))
                if known is None or known.version < each.version:
                    states[str(each.pubend)] = each
        self._note_addresses()
        self._listed = [
            each
            for name, each in states.items()
            if each.broker not in own or name in own[each.broker]
        ]
        found = {
            str(each.pubend): self._where(each.broker)
            for each in self._listed
            if each.quality is Quality.GUARANTEED
        }
        self._phb_addresses |= found
        return found

    def _listed_at(self, server: str) -> tuple[str, list[PubendState]] | None:
        """Return the broker at an address and its list; None if it does not answer."""
        caller = self._reached(server)
        broker = None if caller is None else caller.broker
        if caller is None or broker is None:
            return None
        found: list[PubendState] = []
        after: PubendId | None = None
        try:
            while True:
                answer = caller.request(ListPubends(0, after), within_s=self._look_s)
                assert isinstance(answer, PubendList)
                found += answer.entries
                if not answer.more:
                    return broker, found
                after = answer.entries[-1].pubend
        except GaplessError:
            return None

    @property
    def _look_s(self) -> float:
        return min(_LOOK_S, self._deadline_s)

    def _reached(self, server: str) -> Caller | None:
        """Return the connection to a server; None if it does not answer, until the next retry."""
        key, now = (server,), time.monotonic()
        looked = self._looked_at.get(server)
        if key not in self._callers and (looked is None or now - looked >= _LOOK_AGAIN_S):
            self._looked_at[server] = now
            try:
                self._callers[key] = Caller(
                    key, self._deadline_s, self._credentials, connect_s=self._look_s
                )
            except AuthenticationError:
                raise  # the broker is reachable: its pubends would be omitted silently
            except GaplessError:
                return None
        return self._callers.get(key)

    def _note_addresses(self) -> None:
        """Update the addresses of brokers; a broker that does not answer keeps its address."""
        elsewhere = {
            broker: server
            for broker, server in self._brokers.items()
            if server not in self._answered
        }
        self._brokers = elsewhere | {broker: server for server, broker in self._answered.items()}

    def _where(self, broker: str) -> Where:
        address = self._brokers.get(broker)
        return self._servers if address is None else (address,)

    def _unreachable(self) -> list[str]:
        """Return the servers and brokers that cannot be queried and have no pubend in the list.

        These are servers that do not answer, and brokers that no answering broker reaches.
        """
        listed = {str(each.broker) for each in self._listed}
        known = {server: broker for broker, server in self._brokers.items()}
        silent = [
            server
            for server in self._servers
            if server not in self._answered and known.get(server) not in listed
        ]
        brokers: set[str] = set()
        reached = set(self._answered.values())
        for server in self._answered:
            caller = self._callers[server,]
            try:
                shown = caller.request(GetTopology(0), within_s=self._look_s)
            except GaplessError:
                continue
            assert isinstance(shown, TopologyReply)
            for cell in shown.cells:  # of its neighbourhood, the nearest first
                brokers.update(cell.brokers)
                reached.update(cell.reached)
        return [*silent, *sorted(brokers - reached - listed)]

    def phb_addresses(self, pubend: str) -> Where:
        """Return the addresses to read a pubend from."""
        if pubend not in self._phb_addresses:
            self.pubends()
        return self._phb_addresses.get(pubend, self._servers)

    def route(self, pubend: str) -> Where:
        """Return these addresses, followed by the servers, for tasks that cannot query again."""
        return tuple(dict.fromkeys((*self.phb_addresses(pubend), *self._servers)))

    def chosen(self, names: Collection[str], *, settle: bool = True) -> dict[str, Where]:
        """Return the named pubends, or all that are known.

        A missing pubend that is named is waited for: until the deadline if a broker that may have
        it is unreachable, otherwise for ``_SETTLE_S``. For all pubends the wait is never longer
        than that, because a stopped broker may have none; unreachable brokers are then logged.
        Without ``settle`` there is no wait.
        """
        return self._named(names) if names else self._all(settle=settle)

    def _named(self, names: Collection[str]) -> dict[str, Where]:
        started_at = time.monotonic()
        while True:
            known = self.pubends()
            missing = [name for name in names if name not in known]
            if not missing:
                return {name: known[name] for name in names}
            unreachable = self._unreachable()
            if self._is_over(started_at, self._deadline_s if unreachable else _SETTLE_S):
                raise _missing_error(missing, known, unreachable)
            self._pause()

    def _all(self, *, settle: bool) -> dict[str, Where]:
        started_at = time.monotonic()
        while True:
            known = self.pubends()
            unreachable = self._unreachable()
            limit_s = _SETTLE_S if self._answered else self._deadline_s
            if not unreachable or not settle or self._is_over(started_at, limit_s):
                break
            self._pause()
        if settle and not self._answered:
            raise DeadlineError(
                f"no broker has listed its pubends within {self._deadline_s:g} s: "
                f"{', '.join(unreachable)}"
            )
        self._warn_of(unreachable)
        return known

    def _is_over(self, started_at: float, limit_s: float) -> bool:
        return time.monotonic() - started_at >= min(limit_s, self._deadline_s)

    def _pause(self) -> None:
        """Wait, and let silent servers be tried again."""
        time.sleep(_PAUSE_S)
        self._looked_at.clear()

    def _warn_of(self, unreachable: list[str]) -> None:
        """Log unreachable brokers once: the user may know that they have no pubends."""
        if unreachable and unreachable != self._warned_of:
            LOG.warning(
                "cannot query the pubends of %s: pubends that only they know are omitted",
                ", ".join(unreachable),
            )
        self._warned_of = unreachable

    # --- logs ----------------------------------------------------------------------------------

    def part(
        self,
        pubend: str,
        filter_text: str,
        low: Tick,
        high: Tick,
        *,
        form: ReadForm,
        bytes_max: int = 0,
    ) -> ReadPart:
        """Return the matching events from a tick on, as far as one reply goes.

        A broker that was just started does not know all pubends yet, so a pubend that was listed
        before is waited for. Its broker may have another address now, so it is located again.
        """
        request = ReadLog(0, pubend_id(pubend), filter_text, low, high, bytes_max, form)
        ends_at = time.monotonic() + self._deadline_s
        while True:
            caller = self.caller(self.phb_addresses(pubend))
            retry = pubend in self._phb_addresses
            left = max(0.0, ends_at - time.monotonic())
            within_s = min(left, _STUCK_S) if retry else left
            try:
                return caller.start_read(request, retry=retry, within_s=within_s).result()
            except PubendClosedError:
                raise  # for ever
            except (DeadlineError, RefusedError):
                if not retry or time.monotonic() >= ends_at:
                    raise
            self._look_again()

    def _look_again(self) -> None:
        """Locate all brokers again; pubends without a known address are read through servers."""
        self._looked_at.clear()
        self._brokers.clear()
        self.pubends()

    def extent(self, pubend: str, filter_text: str) -> Extent:
        """Return the current extent of a pubend's log for a filter."""
        part = self.part(pubend, filter_text, 1, 1, form=ReadForm.TICKS)
        return Extent(part.released, max(part.top, part.released))


def _missing_error(
    missing: list[str], known: Collection[str], unreachable: list[str]
) -> UsageError:
    have = ", ".join(sorted(known)) or "none"
    fault = f"option pubends: there is no log of {', '.join(missing)}; the overlay has {have}"
    if unreachable:
        fault += f", and {', '.join(unreachable)} cannot be queried"
    return UsageError(fault)
