"""The clients of a broker: who is connected, what they ask, what they are told.

A connection has a name of its own for the machine, so a client that comes back is never taken for
the connection it lost. Requests go to the machine as they come. A client that asks what nobody can
understand, says nothing for too long or does not read is let go with a reason; the others do not
notice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import msgspec

from gapless.audit.brokers import BrokerAudit
from gapless.core.errors import ProtocolError
from gapless.core.ids import PubendId
from gapless.core.limits import BEATS_MISSED_MAX, SHOWN_CLIENT_NAME_MAX
from gapless.core.machine import Asked, ClientDown, ClientFree, ClientFull, ClientUp, Event
from gapless.core.parameters import Parameters
from gapless.messages.clients import Delivery, Publish, Published
from gapless.messages.staging import Stage
from gapless.messages.streams import Publication
from gapless.packed.encode import as_written
from gapless.runtime.connection import Connection, Traffic
from gapless.runtime.logs import Voice
from gapless.wire import CLIENT_NOTICES, CLIENT_REQUESTS, Beat, Body, Farewell, Goodbye

__all__ = ["SWEEPS_A_BEAT", "ClientSession", "Clients"]

SWEEPS_A_BEAT: Final = 2
"""So often in the time of a beat connections are looked at, so that no beat comes late."""

_BEAT: Final = CLIENT_NOTICES.encode(Beat())


def halves(delivery: Delivery) -> tuple[Delivery, Delivery]:
    """Divide a delivery into two, in the order of its events."""
    events = delivery.events
    middle = len(events) // 2
    return _delivery(delivery, events[:middle]), _delivery(delivery, events[middle:])


def _delivery(whole: Delivery, events: list[tuple[PubendId, Publication]]) -> Delivery:
    runs: list[tuple[PubendId, list[Publication]]] = []
    for pubend, publication in events:
        if not runs or runs[-1][0] != pubend:
            runs.append((pubend, []))
        runs[-1][1].append(publication)
    return Delivery(whole.subscription, tuple((pubend, tuple(run)) for pubend, run in runs))


def as_told(delivery: Delivery) -> Delivery:
    """Return a delivery in which runs that were written just now are as they were written."""
    runs: Any = [(pubend, _written(run) or run) for pubend, run in delivery.runs]
    return Delivery(delivery.subscription, runs)


def _written(run: tuple[Publication, ...]) -> msgspec.Raw | None:
    pack = as_written(run)
    return None if pack is None else msgspec.Raw(pack)


class ClientSession:
    """One connection of a client."""

    __slots__ = (
        "_clients",
        "_published",
        "_stalled",
        "connection",
        "held",
        "name",
        "publishes",
        "silence",
        "traffic",
    )

    def __init__(self, clients: Clients, name: str, connection: Connection) -> None:
        self._clients = clients
        self._stalled: asyncio.TimerHandle | None = None
        self._published: list[Event] = []
        """Publications that were read just now."""
        self.name = name
        self.connection = connection
        self.publishes = False
        """Whether it has published, so that it is held while the disk is behind."""
        self.held = False
        self.silence = 0
        """How many sweeps in a row have heard nothing of it."""
        self.traffic = clients.traffic
        """What went over all clients' connections."""

    def take(self, body: Body) -> None:
        """Hand a request to the machine."""
        request = CLIENT_REQUESTS.decode(body)
        kind = type(request)
        if kind is Publish:
            self._published.append(Asked(self.name, request))
            return
        self.taken()
        self.publishes |= kind is Stage
        if kind is Goodbye:
            self.connection.abort()
        elif kind is not Beat:
            if self._clients.audit is not None:
                self._clients.audit.asked(self.name, request)
            self._clients.happen(Asked(self.name, request))

    def taken(self) -> None:
        """Hand on what it has published, all that came at once in one step."""
        if self._published:
            published, self._published = self._published, []
            self.publishes = True
            self._clients.happen_together(published)

    def full(self) -> None:
        """It does not read as fast as it is told; it has the time of some beats to catch up."""
        loop = asyncio.get_running_loop()
        self._stalled = loop.call_later(self._clients.patience_s, self._give_up)
        self._clients.happen(ClientFull(self.name))

    def free(self) -> None:
        """It has caught up."""
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None
            self._clients.happen(ClientFree(self.name))

    def _give_up(self) -> None:
        waiting = self.connection.waiting_bytes
        reason = f"this client does not read: {waiting:,} bytes wait for it; read faster"
        self.connection.close(Farewell.DISMISSED, reason)

    def closed(self, reason: str) -> None:
        """The connection is over."""
        self.free()
        self._clients.gone(self, reason)


class Clients:
    """All clients of a broker."""

    def __init__(
        self,
        happen: Callable[[Event], None],
        happen_together: Callable[[Sequence[Event]], None],
        parameters: Parameters,
        voice: Voice,
        audit: BrokerAudit | None = None,
    ) -> None:
        self.happen = happen
        self.audit = audit
        self.happen_together = happen_together
        self.traffic = Traffic()
        self.published = 0
        self.delivered = 0
        self.dismissed = 0
        self.patience_s = BEATS_MISSED_MAX * parameters.client_beat_ms / 1_000
        self._voice = voice
        self._limit = parameters.connections_max
        self._sessions: dict[str, ClientSession] = {}
        self._made = 0
        self._held = False

    def __len__(self) -> int:
        """Return how many are connected."""
        return len(self._sessions)

    def __iter__(self) -> Iterator[ClientSession]:
        """Go through those who are connected."""
        return iter(list(self._sessions.values()))

    @property
    def is_full(self) -> bool:
        """Whether no more are taken."""
        return len(self._sessions) >= self._limit

    @property
    def waiting_bytes(self) -> int:
        """How much waits to be read by all clients."""
        return sum(each.connection.waiting_bytes for each in self._sessions.values())

    # --- coming and going ------------------------------------------------------------------------

    def new_name(self, called: str) -> str:
        """Return a name that no other connection of this life has."""
        self._made += 1
        shown = "".join(each for each in called[:SHOWN_CLIENT_NAME_MAX] if each.isprintable())
        return f"{shown or 'client'}.{self._made}"

    def welcome(self, name: str, connection: Connection, principal: str = "") -> None:
        """Take a connection whose client has introduced itself; it is of nobody if nobody asks."""
        session = ClientSession(self, name, connection)
        connection.handler = session
        self._sessions[name] = session
        if self.audit is not None:
            self.audit.came(name, principal)
        self._voice.debug(
            "client is here", client=name, principal=principal, address=connection.peer_address
        )
        self.happen(ClientUp(name))

    def gone(self, session: ClientSession, reason: str) -> None:
        """Let the machine know that a client is gone, unless it has sent it away itself."""
        if self._sessions.pop(session.name, None) is not None:
            self._voice.debug("client is gone", client=session.name, reason=reason)
            if self.audit is not None:
                self.audit.gone(session.name)
            self.happen(ClientDown(session.name))

    # --- what the machine wants --------------------------------------------------------------------

    def tell(self, client: str, notice: Any) -> None:
        """Send a notice to a client, if it is still there."""
        session = self._sessions.get(client)
        if session is None:
            return
        kind = type(notice)
        if kind is Delivery:
            self.delivered += notice.count
        elif kind is Published:
            self.published += len(notice.ticks)
        if self.audit is not None:
            self.audit.told(client, notice)
        try:
            frame = CLIENT_NOTICES.encode(as_told(notice) if kind is Delivery else notice)
        except ProtocolError as error:
            self._tell_parts(session, notice, error)
        else:
            session.connection.send(frame)

    def _tell_parts(self, session: ClientSession, notice: Any, error: ProtocolError) -> None:
        """Send what does not fit into a frame in two, and these perhaps in two again."""
        if type(notice) is not Delivery or notice.count < 2:
            session.connection.close(Farewell.DISMISSED, str(error))
            return
        for part in halves(notice):
            try:
                session.connection.send(CLIENT_NOTICES.encode(part))
            except ProtocolError as still:
                self._tell_parts(session, part, still)

    def dismiss(self, client: str, reason: str) -> None:
        """Let a client go; the machine knows already that it is gone."""
        session = self._sessions.pop(client, None)
        if session is not None:
            self.dismissed += 1
            if self.audit is not None:
                self.audit.gone(client)
            self._voice.info("client is dismissed", client=client, reason=reason)
            session.connection.close(Farewell.DISMISSED, reason)

    # --- signs of life, backpressure -----------------------------------------------------------------

    def sweep(self) -> None:
        """Say something to those who heard nothing; give those up who said nothing."""
        for session in list(self._sessions.values()):
            connection = session.connection
            if connection.heard or session.held:
                connection.heard = False
                session.silence = 0
            else:
                session.silence += 1
                if session.silence >= BEATS_MISSED_MAX * SWEEPS_A_BEAT:
                    reason = f"nothing was heard for {self.patience_s:g} s"
                    connection.close(Farewell.SILENT, reason)
                    continue
            if not connection.spoke:
                connection.send(_BEAT)
                connection.flush()
            connection.spoke = False

    def hold(self) -> None:
        """Read nothing from publishers: the disk is behind."""
        self._held = True
        for session in self._sessions.values():
            if session.publishes and not session.held:
                session.held = True
                session.connection.hold()

    def go_on(self) -> None:
        """Read from publishers again."""
        if self._held:
            self._held = False
            for session in self._sessions.values():
                if session.held:
                    session.held = False
                    session.connection.go_on()

    def stop_reading(self) -> None:
        """Take no more requests: the broker stops."""
        for session in self._sessions.values():
            session.held = True
            session.connection.hold()

    def leave(self, reason: str) -> None:
        """Say goodbye to all."""
        sessions, self._sessions = self._sessions, {}
        for session in sessions.values():
            session.connection.close(Farewell.STOPPING, reason)
