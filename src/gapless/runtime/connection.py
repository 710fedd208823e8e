"""One connection: bytes in, bodies out to whoever handles them; frames in, one write a step.

A handler is what the connection is at the moment: a newcomer that has not introduced itself, a
client, a link. It is asked nothing before it was given a body, and told once when all is over.

Frames are gathered while the machine's steps are carried out, and written when these are through:
what is ready goes out together, and a lone frame does not wait for a turn of the event loop. When
much comes in, what goes out is written once in a turn. What the other side does not read gathers in the
transport. Above ``bytes_max`` the handler is told, so that it can hold back; above ``OVERFLOW`` times
that, the connection ends.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final, Protocol, cast

from gapless.core.errors import ProtocolError
from gapless.runtime.open_connections import OpenConnections
from gapless.wire import Body, Disconnect, DisconnectReason, FrameReader, encode_handshake

__all__ = [
    "CLOSE_TIMEOUT_S",
    "FrameHandler",
    "FramedConnection",
    "TrafficCounters",
    "WriteScheduler",
]

CLOSE_TIMEOUT_S: Final = 1.0
"""How long a connection that ends may take to send the rest and to hear that the other side ends
too; then it is cut."""

MUCH_READ: Final = 65_536
"""Bytes that, read at once, say that more is there. The event loop then goes on reading from the same
connection for a while. Whoever were answered meanwhile would send more, and others would starve."""

TURN_BYTES: Final = 262_144
"""So much is read from a connection in a turn of the loop; then others are looked at."""

OVERFLOW: Final = 4
"""So many times ``bytes_max`` may wait before the connection ends: some is sent before it can be
held back."""


class TrafficCounters:
    """What went over connections of one kind; counted a frame or a write at a time."""

    __slots__ = ("bytes_in", "bytes_out", "frames_in", "frames_out")

    def __init__(self) -> None:
        self.bytes_in = 0
        self.bytes_out = 0
        self.frames_in = 0
        self.frames_out = 0

    def count_read(self, size: int, frames: int) -> None:
        """So many bytes were read at once, with so many whole frames."""
        self.bytes_in += size
        self.frames_in += frames

    def count_written(self, size: int, frames: int) -> None:
        """So many bytes were written at once, with so many frames."""
        self.bytes_out += size
        self.frames_out += frames


class FrameHandler(Protocol):
    """What a connection is at the moment."""

    traffic: TrafficCounters
    """What counts the frames of this kind of connection."""

    def take(self, body: Body) -> None:
        """Take the body of a frame, which is good until this is through; raises ProtocolError if it cannot stand here."""

    def taken(self) -> None:
        """All frames of what was read at once were taken."""

    def congested(self) -> None:
        """Much waits to be sent."""

    def drained(self) -> None:
        """What waited to be sent is mostly sent."""

    def closed(self, reason: str) -> None:
        """The connection is over: nothing more comes, nothing more can be sent."""


class WriteScheduler:
    """Connections with something to write; all write when the steps that sent it are through."""

    __slots__ = ("_gathers", "_loop", "_pending")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._pending: list[FramedConnection] = []
        self._gathers = False
        """Whether all wait for the next turn of the loop."""

    def add(self, connection: FramedConnection) -> None:
        """Let a connection write when the others do, those to brokers first."""
        if connection.has_priority:
            self._pending.insert(0, connection)
        else:
            self._pending.append(connection)

    def flush(self) -> None:
        """Let all write now, unless they wait for the next turn."""
        if self._pending and not self._gathers:
            pending, self._pending = self._pending, []
            for connection in pending:
                connection.flush()

    def gather(self) -> None:
        """Let all wait for the next turn, and write once then."""
        if not self._gathers:
            self._gathers = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._gathers = False
        self.flush()


class FramedConnection(asyncio.BufferedProtocol):
    """A connection that carries frames."""

    def __init__(
        self,
        scheduler: WriteScheduler,
        connections: OpenConnections[FramedConnection],
        bytes_max: int,
        frame_bytes_max: int,
    ) -> None:
        self.handler: FrameHandler
        self._has_received = True
        """Whether something came since a check last looked."""
        self._has_sent = True
        """Whether something was sent since a check last looked."""
        self.has_priority = False
        """Whether what is sent has farther to go: then it is written before what ends here."""
        self.over = False
        self.is_congested = False
        self._scheduler = scheduler
        self._connections = connections
        self._bytes_max = bytes_max
        self._frames: list[bytearray] = []
        self._reader = FrameReader(frame_bytes_max)
        self._transport: asyncio.Transport | None = None
        self._read = 0
        """How much was read in this turn of the loop, if it was much."""
        self._is_paused = False
        """Whether nothing is to be read for a while."""
        self._close_timer: asyncio.TimerHandle | None = None

    def hand_to(self, handler: FrameHandler) -> None:
        """Let a handler take the frames from now on."""
        self.handler = handler

    def prioritise(self) -> None:
        """Write before other connections: what is sent here has farther to go."""
        self.has_priority = True

    def take_received(self) -> bool:
        """Return whether something came since this was called last."""
        received, self._has_received = self._has_received, False
        return received

    def take_sent(self) -> bool:
        """Return whether something was sent since this was called last."""
        sent, self._has_sent = self._has_sent, False
        return sent

    # --- the transport -------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The transport is there."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is none by its class
        self._connections.add(self)
        self._transport.set_write_buffer_limits(high=self._bytes_max, low=self._bytes_max // 2)
        if self.over:
            self._transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        """The transport is gone."""
        self._connections.discard(self)
        self._transport = None
        if self._close_timer is not None:
            self._close_timer.cancel()
        self._end(f"the connection broke: {error}" if error else "the other side closed")

    def get_buffer(self, sizehint: int) -> memoryview:
        """Say where to put what is read."""
        del sizehint
        return self._reader.buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Hand on every frame that is whole now; what cannot be understood ends the connection."""
        was_over = self.over  # by a name of its own, as it may change below
        if was_over:
            return
        self._has_received = True
        reader = self._reader
        if nbytes >= MUCH_READ:
            self._scheduler.gather()
            self._read_on(nbytes)
        try:
            bodies = reader.filled(nbytes)
            self.handler.traffic.count_read(nbytes, len(bodies))
            for body in bodies:
                self.handler.take(body)  # which may change the handler, or end all
                if self.over:
                    return
            self.handler.taken()
        except ProtocolError as error:
            self.close(DisconnectReason.PROTOCOL_ERROR, str(error))

    def _read_on(self, count: int) -> None:
        """Let others have their turns when much was read in this one."""
        if not self._read:
            asyncio.get_running_loop().call_soon(self._turn)
        self._read += count
        if self._read >= TURN_BYTES:
            self._pause_transport()

    def _turn(self) -> None:
        """Read on in the next turn."""
        if self._read >= TURN_BYTES and not self._is_paused:
            self._resume_transport()
        self._read = 0

    def pause_writing(self) -> None:
        """More waits than the limit."""
        self.is_congested = True
        if not self.over:
            self.handler.congested()

    def resume_writing(self) -> None:
        """Half of the limit waits."""
        self.is_congested = False
        if not self.over:
            self.handler.drained()

    # --- sending and ending ----------------------------------------------------------------------

    @property
    def waiting_bytes(self) -> int:
        """How much waits to be sent."""
        written = 0 if self._transport is None else self._transport.get_write_buffer_size()
        return written + sum(map(len, self._frames))

    @property
    def peer_address(self) -> str:
        """Where the other side is, for people."""
        found: Any = self._transport and self._transport.get_extra_info("peername")
        return f"{found[0]}:{found[1]}" if found else "nowhere"

    def send(self, frame: bytearray) -> None:
        """Send a frame, with all others of this step; outside of steps :meth:`flush` must follow."""
        if self.over:
            return
        if not self._frames:
            self._scheduler.add(self)
        self._frames.append(frame)

    def flush(self) -> None:
        """Write what was gathered."""
        frames, transport = self._frames, self._transport
        if not frames or transport is None:
            return
        self._frames = []
        self._has_sent = True
        behind = transport.get_write_buffer_size() if self.is_congested else 0
        data = frames[0] if len(frames) == 1 else b"".join(frames)
        self.handler.traffic.count_written(len(data), len(frames))
        transport.write(data)
        if behind > OVERFLOW * self._bytes_max and not self.over:
            reason = f"{behind:,} bytes wait to be read on this connection; read faster"
            self.close(DisconnectReason.CLOSED_BY_BROKER, reason)

    def close(self, code: DisconnectReason, reason: str) -> None:
        """Say why and end. What was sent before still goes out, if the other side reads it."""
        if self.over:
            return
        self.send(encode_handshake(Disconnect(code, reason)))
        self._end(reason)
        self.flush()
        if self._transport is not None:
            # What the other side still sends is read and dropped: to close with something unread
            # would reset the connection, and the reason would be lost on the way.
            try:
                self._transport.write_eof()
                self._transport.resume_reading()
            except OSError:  # the other side was faster
                self._transport.abort()
                return
            loop = asyncio.get_running_loop()
            self._close_timer = loop.call_later(CLOSE_TIMEOUT_S, self.abort)

    def abort(self) -> None:
        """End at once, without a word."""
        self._end("cut off")
        if self._transport is not None:
            self._transport.abort()

    def _end(self, reason: str) -> None:
        if not self.over:
            self.over = True
            self._reader = (
                FrameReader()
            )  # what still comes is dropped, and there is room for much of it
            self.handler.closed(reason)

    # --- limits and backpressure --------------------------------------------------------------------------

    def allow(self, frame_bytes_max: int) -> None:
        """Take frames of another size from now on."""
        self._reader.allow(frame_bytes_max)

    def pause_reading(self) -> None:
        """Read nothing for a while."""
        self._is_paused = True
        self._pause_transport()

    def resume_reading(self) -> None:
        """Read again."""
        self._is_paused = False
        self._resume_transport()

    def _pause_transport(self) -> None:
        if self._transport is not None and not self.over:
            self._transport.pause_reading()

    def _resume_transport(self) -> None:
        if self._transport is not None and not self.over:
            self._transport.resume_reading()
