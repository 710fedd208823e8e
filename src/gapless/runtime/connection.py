"""One connection: bytes come in and frame bodies go to a handler; frames go out, one write per
step.

The handler stands for the state of the connection: pending before the handshake, client session, or
link. It is called for every body, and once when the connection is over.

Frames that were read together are processed one after the other. After a slice of time the others
wait for a later turn of the event loop (:mod:`.turns`), and nothing more is read meanwhile.

Frames are collected during the machine's steps and written after them: what is ready goes out
together, and a single frame does not wait for a turn of the event loop. After a large read, frames
are written once per turn. What the other side does not read accumulates in the transport. Above
``bytes_max`` the handler is notified, so that it can pause, and no more requests of a client are
processed; above ``OVERFLOW`` times that the connection is closed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final, Protocol, cast

from gapless.core.errors import ProtocolError
from gapless.runtime.open_connections import OpenConnections
from gapless.runtime.turns import LoopTurns
from gapless.wire import Body, Disconnect, DisconnectReason, FrameReader, encode_handshake

__all__ = [
    "CLOSE_TIMEOUT_S",
    "FrameHandler",
    "FramedConnection",
    "TrafficCounters",
    "WriteScheduler",
]

CLOSE_TIMEOUT_S: Final = 1.0
"""How long a closing connection may take to send its pending data and to receive the end of the
other side; then it is aborted."""

MUCH_READ: Final = 65_536
"""Bytes of one read that suggest that more is there. The event loop then continues to read from the
same connection for a while. Clients that were answered meanwhile would send more, and others would
starve."""

TURN_BYTES: Final = 262_144
"""So many bytes are read from a connection in a turn of the loop; then others are read."""

OVERFLOW: Final = 4
"""The connection is closed above so many times ``bytes_max``: some frames are sent before the
sender is paused."""


class TrafficCounters:
    """The traffic of all connections of one kind."""

    __slots__ = ("bytes_in", "bytes_out", "frames_in", "frames_out")

    def __init__(self) -> None:
        self.bytes_in = 0
        self.bytes_out = 0
        self.frames_in = 0
        self.frames_out = 0

    def count_read(self, size: int, frames: int) -> None:
        """Count one read with this many bytes and complete frames."""
        self.bytes_in += size
        self.frames_in += frames

    def count_written(self, size: int, frames: int) -> None:
        """Count one write with this many bytes and frames."""
        self.bytes_out += size
        self.frames_out += frames


class FrameHandler(Protocol):
    """What handles the frames of a connection in its current state."""

    traffic: TrafficCounters
    """The counters of this kind of connection."""

    def take(self, body: Body) -> None:
        """Process a frame body, which is valid only during the call; raises ProtocolError."""

    def taken(self) -> None:
        """All frames of one read were processed."""

    def congested(self) -> None:
        """More than ``bytes_max`` bytes wait to be sent."""

    def drained(self) -> None:
        """At most half of ``bytes_max`` bytes wait to be sent."""

    def closed(self, reason: str) -> None:
        """The connection is over: nothing more comes, nothing more can be sent."""


class WriteScheduler:
    """Connections with frames to write; all write after the steps that sent the frames."""

    __slots__ = ("_gathers", "_loop", "_pending")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._pending: list[FramedConnection] = []
        self._gathers = False
        """Whether all writes are deferred to the next turn of the loop."""

    def add(self, connection: FramedConnection) -> None:
        """Let a connection write with the others, connections to brokers first."""
        if connection.has_priority:
            self._pending.insert(0, connection)
        else:
            self._pending.append(connection)

    def flush(self) -> None:
        """Write all connections now, unless writes are deferred to the next turn."""
        if self._pending and not self._gathers:
            pending, self._pending = self._pending, []
            for connection in pending:
                connection.flush()

    def gather(self) -> None:
        """Defer all writes to the next turn."""
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
        turns: LoopTurns,
        connections: OpenConnections[FramedConnection],
        bytes_max: int,
        frame_bytes_max: int,
    ) -> None:
        self.handler: FrameHandler
        self._has_received = True
        """Whether something came since the last check."""
        self._has_sent = True
        """Whether something was sent since the last check."""
        self.has_priority = False
        """Whether frames are written before those of other connections."""
        self.over = False
        self.is_congested = False
        self._scheduler = scheduler
        self._turns = turns
        self._connections = connections
        self._bytes_max = bytes_max
        self._frames: list[bytearray] = []
        self._collected = 0
        """The bytes of these frames."""
        self._bodies: list[bytes] = []
        """Bodies that were read and wait for a later turn."""
        self._has_turn = False
        """Whether a turn is requested."""
        self._reader = FrameReader(frame_bytes_max)
        self._transport: asyncio.Transport | None = None
        self._read = 0
        """How many bytes were read in this turn of the loop, by large reads."""
        self._is_paused = False
        """Whether reading is paused by the handler."""
        self._close_timer: asyncio.TimerHandle | None = None

    def hand_to(self, handler: FrameHandler) -> None:
        """Let another handler process the frames from now on."""
        self.handler = handler

    def prioritise(self) -> None:
        """Write before other connections, because the frames are forwarded further."""
        self.has_priority = True

    def take_received(self) -> bool:
        """Return whether something came since the last call."""
        received, self._has_received = self._has_received, False
        return received

    def take_sent(self) -> bool:
        """Return whether something was sent since the last call."""
        sent, self._has_sent = self._has_sent, False
        return sent

    # --- the transport -------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The transport is open."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's class is not a subclass
        self._connections.add(self)
        self._transport.set_write_buffer_limits(high=self._bytes_max, low=self._bytes_max // 2)
        if self.over:
            self._transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        """The transport is closed."""
        self._connections.discard(self)
        self._transport = None
        if self._close_timer is not None:
            self._close_timer.cancel()
        self._end(f"the connection broke: {error}" if error else "the other side closed")

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer for the next read."""
        del sizehint
        return self._reader.buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Pass on every complete frame; a malformed one ends the connection."""
        was_over = self.over  # a separate name, because it may change below
        if was_over:
            return
        self._has_received = True
        reader = self._reader
        if nbytes >= MUCH_READ:
            self._scheduler.gather()
            self._read_on(nbytes)
        try:
            bodies = reader.filled(nbytes)
        except ProtocolError as error:
            self.close(DisconnectReason.PROTOCOL_ERROR, str(error))
            return
        self.handler.traffic.count_read(nbytes, len(bodies))
        if self._bodies or (bodies and (self._is_held or self._turns.is_over)):
            self._wait(bodies)
        else:
            self._process(bodies)

    def _process(self, bodies: Sequence[Body]) -> None:
        """Pass on bodies for one slice of time; the others wait for a later turn."""
        turns = self._turns
        started_s = turns.start_slice()
        try:
            for count, body in enumerate(bodies, 1):
                self.handler.take(body)  # which may change the handler, or end the connection
                if self.over:
                    return
                if count < len(bodies) and (self._is_held or turns.is_slice_over(started_s)):
                    self._wait(bodies[count:])
                    break
            self.handler.taken()
        except ProtocolError as error:
            self.close(DisconnectReason.PROTOCOL_ERROR, str(error))
        finally:
            turns.end_slice(started_s)

    def _wait(self, bodies: Sequence[Body]) -> None:
        """Process bodies in a later turn, and read nothing before that."""
        self._bodies += map(bytes, bodies)  # the next read overwrites the buffer of these
        self._pause_transport()
        self._request_turn()

    def _request_turn(self) -> None:
        if not self._has_turn:
            self._has_turn = True
            self._turns.wait(self)

    def take_turn(self) -> None:
        """Process bodies that wait, and read again after the last one."""
        self._has_turn = False
        if not self._bodies or self._is_paused or self._is_unread:
            return  # the connection is over, or continues when it is resumed or has drained
        if self._is_held:
            self._request_turn()  # until the collected frames are written
            return
        self._has_received = True  # the other side is not silent: it was not listened to
        bodies, self._bodies = self._bodies, []
        self._process(bodies)
        self._review_reading()

    def _read_on(self, count: int) -> None:
        """Pause reading after ``TURN_BYTES``, so that other connections are read."""
        if not self._read:
            asyncio.get_running_loop().call_soon(self._turn)
        self._read += count
        if self._read >= TURN_BYTES:
            self._pause_transport()

    def _turn(self) -> None:
        """Resume reading in the next turn."""
        self._read = 0
        self._review_reading()

    def _review_reading(self) -> None:
        """Read again unless there is a reason to pause."""
        if not self._bodies and not self._is_held and self._read < TURN_BYTES:
            self._resume_transport()

    @property
    def _is_held(self) -> bool:
        """Whether no frame is processed now: the handler has paused it, or too much waits to be sent.

        A client that does not read its answers is not read either, so that its requests make no
        more of them. Brokers read in any case: two of them that wait for each other would stop.
        """
        if self._is_paused or self._is_unread:
            return True
        return not self.has_priority and self._collected > self._bytes_max

    @property
    def _is_unread(self) -> bool:
        """Whether a client leaves its answers unread."""
        return self.is_congested and not self.has_priority

    def pause_writing(self) -> None:
        """More than the limit waits to be sent."""
        self.is_congested = True
        if not self.over:
            if not self.has_priority:
                self._pause_transport()
            self.handler.congested()

    def resume_writing(self) -> None:
        """At most half of the limit waits to be sent."""
        self.is_congested = False
        if not self.over:
            self.handler.drained()
            self._continue_reading()

    # --- sending and ending ----------------------------------------------------------------------

    @property
    def waiting_bytes(self) -> int:
        """How many bytes wait to be sent."""
        written = 0 if self._transport is None else self._transport.get_write_buffer_size()
        return written + self._collected

    @property
    def peer_address(self) -> str:
        """The address of the other side, for log lines."""
        found: Any = self._transport and self._transport.get_extra_info("peername")
        return f"{found[0]}:{found[1]}" if found else "nowhere"

    def send(self, frame: bytearray) -> None:
        """Send a frame, with all others of this step; outside of steps call :meth:`flush` too."""
        if self.over:
            return
        if not self._frames:
            self._scheduler.add(self)
        self._frames.append(frame)
        self._collected += len(frame)

    def flush(self) -> None:
        """Write the collected frames."""
        frames, transport = self._frames, self._transport
        if not frames or transport is None:
            return
        self._frames, self._collected = [], 0
        self._has_sent = True
        behind = transport.get_write_buffer_size() if self.is_congested else 0
        data = frames[0] if len(frames) == 1 else b"".join(frames)
        self.handler.traffic.count_written(len(data), len(frames))
        transport.write(data)
        if behind > OVERFLOW * self._bytes_max and not self.over:
            reason = f"{behind:,} bytes wait to be read on this connection; read faster"
            self.close(DisconnectReason.CLOSED_BY_BROKER, reason)

    def close(self, code: DisconnectReason, reason: str) -> None:
        """Send a disconnect reason and end; what was sent before still goes out."""
        if self.over:
            return
        self.send(encode_handshake(Disconnect(code, reason)))
        self._end(reason)
        self.flush()
        if self._transport is not None:
            # Further input is read and dropped: closing with unread input resets the connection,
            # and the disconnect reason is lost.
            try:
                self._transport.write_eof()
                self._transport.resume_reading()
            except OSError:  # the other side was faster
                self._transport.abort()
                return
            loop = asyncio.get_running_loop()
            self._close_timer = loop.call_later(CLOSE_TIMEOUT_S, self.abort)

    def abort(self) -> None:
        """End at once, without a disconnect reason."""
        self._end("cut off")
        if self._transport is not None:
            self._transport.abort()

    def _end(self, reason: str) -> None:
        if not self.over:
            self.over = True
            self._bodies = []
            self._reader = (
                FrameReader()
            )  # further input is dropped; the buffer is large enough for it
            self.handler.closed(reason)

    # --- limits and backpressure -----------------------------------------------------------------

    def allow(self, frame_bytes_max: int) -> None:
        """Accept frames of another size from now on."""
        self._reader.allow(frame_bytes_max)

    def pause_reading(self) -> None:
        """Read nothing for a while."""
        self._is_paused = True
        self._pause_transport()

    def resume_reading(self) -> None:
        """Process what waits, and read again."""
        self._is_paused = False
        self._continue_reading()

    def _continue_reading(self) -> None:
        if self._bodies:
            self._request_turn()
        self._review_reading()

    def _pause_transport(self) -> None:
        if self._transport is not None and not self.over:
            self._transport.pause_reading()

    def _resume_transport(self) -> None:
        if self._transport is not None and not self.over:
            self._transport.resume_reading()
