"""The baseline: a bare relay of frames without guarantees.

Every hop reads frames of events, keeps those whose symbol is in a set, and forwards them: the cost of
Python and uvloop before a broker does anything. Frames are those of our wire: a length, then
msgpack arrays. A relay pauses the side that writes while the side that reads is behind.

::

    publisher --> relay --> relay --> subscriber      (each arrow is a connection, dialled by --> 's
                                                       right side, except the publisher's)
"""

from __future__ import annotations

import asyncio
from typing import Final, cast

import msgspec
import uvloop

from benchmarks.streams.splitter import Splitter
from gapless.wire.frames import HEADER_BYTES

__all__ = ["Events", "decode", "encode", "run_relay"]

Events = tuple[tuple[dict[str, bool | int | float | str], bytes], ...]

_PUBLISHER: Final = b"P"
_SUBSCRIBER: Final = b"S"
_QUEUE_BYTES: Final = 4_194_304

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Events)


def encode(events: Events) -> bytearray:
    """Return events as a frame."""
    frame = bytearray(HEADER_BYTES)
    _encoder.encode_into(events, frame, HEADER_BYTES)
    frame[:HEADER_BYTES] = (len(frame) - HEADER_BYTES).to_bytes(HEADER_BYTES, "big")
    return frame


def decode(body: bytes) -> Events:
    """Return the events of a frame."""
    return _decoder.decode(body)


class _Relay:
    """State that the connections of one relay share."""

    def __init__(self, wanted: frozenset[str]) -> None:
        self.wanted = wanted
        self.readers: list[asyncio.Transport] = []
        self.writers: list[asyncio.Transport] = []

    def pass_on(self, bodies: list[bytes]) -> None:
        frames = []
        for body in bodies:
            events = decode(body)
            kept = tuple(event for event in events if event[0]["symbol"] in self.wanted)
            if kept:
                frames.append(encode(kept))
        data = b"".join(frames)
        for writer in self.writers:
            writer.write(data)

    def pause(self) -> None:
        for reader in self.readers:
            reader.pause_reading()

    def resume(self) -> None:
        for reader in self.readers:
            reader.resume_reading()


class _Connection(asyncio.Protocol):
    """A publisher, a subscriber, or the relay before this one."""

    def __init__(self, relay: _Relay, *, upstream: bool = False) -> None:
        self._relay = relay
        self._role = _PUBLISHER if upstream else b""
        self._dials = upstream
        self._splitter = Splitter()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's class is not a subclass
        self._transport.set_write_buffer_limits(_QUEUE_BYTES)
        if self._dials:
            self._transport.write(_SUBSCRIBER)
            self._relay.readers.append(self._transport)

    def data_received(self, data: bytes) -> None:
        if not self._role:
            self._role, data = data[:1], data[1:]
            side = self._relay.writers if self._role == _SUBSCRIBER else self._relay.readers
            side.append(self._transport)
        if data:
            self._relay.pass_on(self._splitter.feed(data))

    def pause_writing(self) -> None:
        self._relay.pause()

    def resume_writing(self) -> None:
        self._relay.resume()

    def connection_lost(self, error: Exception | None) -> None:
        del error
        for side in (self._relay.readers, self._relay.writers):
            if self._transport in side:
                side.remove(self._transport)


async def _serve(port: int, upstream: int | None, wanted: frozenset[str]) -> None:
    loop = asyncio.get_running_loop()
    relay = _Relay(wanted)
    if upstream is not None:
        await loop.create_connection(
            lambda: _Connection(relay, upstream=True), "127.0.0.1", upstream
        )
    server = await loop.create_server(lambda: _Connection(relay), "127.0.0.1", port)
    async with server:
        await server.serve_forever()


def run_relay(port: int, upstream: int | None, wanted: frozenset[str]) -> None:
    """Relay until this process is ended."""
    uvloop.run(_serve(port, upstream, wanted))
