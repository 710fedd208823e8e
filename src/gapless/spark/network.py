"""The overlay as the Spark face sees it: which pubends there are, where their logs are, what they hold.

Everything here waits. A connection is made when it is needed, one for each set of addresses, and is
made again by the client whenever it is lost.

A broker knows its own pubends from its disk, at once; those of others it hears of when it reaches them.
So one that was started just now does not list all, and nobody can tell which ones it leaves out. What all
named servers say together is whole, as far as they answer. Who does not answer is *away*: a pubend that is
wanted by its name and is missing is waited for then; who wants all pubends is told who is away.
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
    RefusedError,
    UnavailableError,
    UsageError,
)
from gapless.core.ids import PubendId
from gapless.core.ticks import Tick
from gapless.messages.clients import ReadLog, ReadPart
from gapless.messages.operating import (
    GetTopology,
    ListPubends,
    PubendList,
    PubendState,
    TopologyReply,
)
from gapless.messages.overlay import Quality
from gapless.messages.streams import ReadForm

__all__ = ["FOREVER", "LOG", "Caller", "Extent", "OverlayClient"]

LOG = logging.getLogger("gapless.spark")

FOREVER: Final = 2**62
"""Above every tick."""

_BACKOFF: Final = Backoff(first_s=0.05, longest_s=2.0)
_PAUSE_S: Final = 0.1
"""Between two tries where a broker says that something is not in reach now."""

_LOOK_S: Final = 2.0
"""How long an address may take to say which broker is there."""

_LOOK_AGAIN_S: Final = 60.0
"""After so long an address is tried again at which nobody was."""

_SETTLE_S: Final = 2.0
"""A broker that was started just now has heard of the pubends of those that it reaches after so long."""

_STUCK_S: Final = 5.0
"""After so long without an answer it is looked again where a log is."""

Where = tuple[str, ...]


class Extent(msgspec.Struct, frozen=True):
    """How far a log goes."""

    released: Tick
    """Up to here events that match may be gone."""
    top: Tick
    """Up to here everything is decided; nothing will ever be added below."""


class Caller:
    """A session with some brokers, in a thread of its own, whose calls wait."""

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
        self._portal = EventLoopThread()
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
        """Which broker is at the other end, if one is now."""
        return None if self._session is None else self._session.broker

    def close(self) -> None:
        """End the session and its thread."""
        try:
            if self._session is not None:
                self._portal.run(self._session.close())
        finally:
            self._portal.stop()

    def ask(self, message: Any, *, changes: bool = False, within_s: float | None = None) -> Any:
        """Send a request and wait for its answer, until the deadline if no other time is given."""
        assert self._session is not None
        deadline = self._deadline_s if within_s is None else within_s
        return self._portal.run(
            self._session.request(message, deadline_s=deadline, changes=changes)
        )

    def start_read(self, request: ReadLog, *, patient: bool, within_s: float) -> Future[ReadPart]:
        """Ask for a part of a log; return what can be waited for.

        One who is patient takes no refusal before his time is over: what he asks for has been there.
        """
        return self._portal.start(self._part(request, patient=patient, within_s=within_s))

    async def _part(self, request: ReadLog, *, patient: bool, within_s: float) -> ReadPart:
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


class OverlayClient:
    """Asks brokers on behalf of the driver."""

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
        """The broker at each server that has answered last time."""
        self._listed: list[PubendState] = []
        self._warned_of: list[str] = []
        self._looked_at: dict[str, float] = {}
        self._phb_addresses: dict[str, Where] = {}

    def close(self) -> None:
        """End all connections."""
        while self._callers:
            self._callers.popitem()[1].close()

    def caller(self, where: Where | None = None) -> Caller:
        """Return a connection to one of some addresses, by default to any of the overlay."""
        key = where or self._servers
        if key not in self._callers:
            self._callers[key] = Caller(key, self._deadline_s, self._credentials)
        return self._callers[key]

    # --- pubends -------------------------------------------------------------------------------

    def pubends(self) -> dict[str, Where]:
        """Return the pubends that have logs, each with the addresses to read it from.

        They are what all servers say together that answer. Of its own pubends a broker knows best.
        """
        self.caller()  # one has to answer, before the deadline
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
        """Return which broker is at an address and what it lists; None if nobody answers there."""
        caller = self._reached(server)
        broker = None if caller is None else caller.broker
        if caller is None or broker is None:
            return None
        found: list[PubendState] = []
        after: PubendId | None = None
        try:
            while True:
                answer = caller.ask(ListPubends(0, after), within_s=self._look_s)
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
        """Return the connection to one server, None if nobody is there; that is tried again later."""
        key, now = (server,), time.monotonic()
        looked = self._looked_at.get(server)
        if key not in self._callers and (looked is None or now - looked >= _LOOK_AGAIN_S):
            self._looked_at[server] = now
            try:
                self._callers[key] = Caller(
                    key, self._deadline_s, self._credentials, connect_s=self._look_s
                )
            except AuthenticationError:
                raise  # nobody is away here: what this broker has would be left out in silence
            except GaplessError:
                return None
        return self._callers.get(key)

    def _note_addresses(self) -> None:
        """Note at which address each broker is; one that does not answer is where it was."""
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
        """Return who cannot be asked for pubends, and has none in the list.

        That is a server that does not answer, and a broker that nobody reaches who answers.
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
                shown = caller.ask(GetTopology(0), within_s=self._look_s)
            except GaplessError:
                continue
            assert isinstance(shown, TopologyReply)
            for cell in shown.cells:  # the nearest ones; from those beyond it hears through them
                brokers.update(cell.brokers)
                reached.update(cell.reached)
        return [*silent, *sorted(brokers - reached - listed)]

    def phb_addresses(self, pubend: str) -> Where:
        """Return the addresses to read a pubend from."""
        if pubend not in self._phb_addresses:
            self.pubends()
        return self._phb_addresses.get(pubend, self._servers)

    def route(self, pubend: str) -> Where:
        """Return the same for who cannot look again: behind them the servers that know the way."""
        return tuple(dict.fromkeys((*self.phb_addresses(pubend), *self._servers)))

    def chosen(self, wanted: Collection[str], *, settle: bool = True) -> dict[str, Where]:
        """Return the wanted pubends, or all that are known.

        One that is wanted and missing is waited for: until the deadline while somebody is away who may
        have it, else as long as it takes to hear of it. For all pubends nobody is waited for longer than
        that, as a broker may be down that has none; who is away then is named in a warning. Who does not
        want to ``settle`` takes what is known now.
        """
        return self._named(wanted) if wanted else self._all(settle=settle)

    def _named(self, wanted: Collection[str]) -> dict[str, Where]:
        started_at = time.monotonic()
        while True:
            known = self.pubends()
            missing = [name for name in wanted if name not in known]
            if not missing:
                return {name: known[name] for name in wanted}
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
                f"no broker has said which pubends there are within {self._deadline_s:g} s: "
                f"{', '.join(unreachable)}"
            )
        self._warn_of(unreachable)
        return known

    def _is_over(self, started_at: float, limit_s: float) -> bool:
        return time.monotonic() - started_at >= min(limit_s, self._deadline_s)

    def _pause(self) -> None:
        """Give brokers time, and try those again that did not answer."""
        time.sleep(_PAUSE_S)
        self._looked_at.clear()

    def _warn_of(self, unreachable: list[str]) -> None:
        """Say once who is away: the user may know that they have no pubends."""
        if unreachable and unreachable != self._warned_of:
            LOG.warning(
                "cannot ask %s for pubends: those that only they know of are left out",
                ", ".join(unreachable),
            )
        self._warned_of = unreachable

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
        is waited for. It may have come up at another address meanwhile, so it is looked for again.
        """
        request = ReadLog(0, pubend_id(pubend), wanted, low, high, bytes_max, form)
        ends_at = time.monotonic() + self._deadline_s
        while True:
            caller = self.caller(self.phb_addresses(pubend))
            patient = pubend in self._phb_addresses
            left = max(0.0, ends_at - time.monotonic())
            within_s = min(left, _STUCK_S) if patient else left
            try:
                return caller.start_read(request, patient=patient, within_s=within_s).result()
            except (DeadlineError, RefusedError):
                if not patient or time.monotonic() >= ends_at:
                    raise
            self._look_again()

    def _look_again(self) -> None:
        """Find out anew who is where; what has no address of its own is read through the others."""
        self._looked_at.clear()
        self._brokers.clear()
        self.pubends()

    def extent(self, pubend: str, wanted: str) -> Extent:
        """Return how far the log of a pubend goes now, for who wants what matches a filter."""
        part = self.part(pubend, wanted, 1, 1, form=ReadForm.TICKS)
        return Extent(part.released, max(part.top, part.released))


def _missing_error(
    missing: list[str], known: Collection[str], unreachable: list[str]
) -> UsageError:
    have = ", ".join(sorted(known)) or "none"
    fault = f"option pubends: there is no log of {', '.join(missing)}; the overlay has {have}"
    if unreachable:
        fault += f", and {', '.join(unreachable)} cannot be asked"
    return UsageError(fault)
