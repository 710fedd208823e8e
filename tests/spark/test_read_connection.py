"""A task continues with another connection if one is dead or refuses."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from time import monotonic

import pytest

from gapless.core.ids import PubendId
from gapless.messages.clients import Refused
from gapless.messages.reading import ReadLog, ReadPart
from gapless.spark import read_connection as line
from gapless.spark.read_connection import ReadConnection
from gapless.wire import (
    CLIENT_NOTICES,
    CLIENT_REQUESTS,
    FRAME_BYTES_MAX,
    HEADER_BYTES,
    VERSIONS,
    Connected,
    KeepAlive,
    encode_handshake,
)

Answer = Callable[[int], object]
"""The reply to the request of a number; None is silence."""


class ScriptedBroker:
    """Accepts every connection and sends one reply after the other."""

    def __init__(self, *answers: Answer) -> None:
        self._answers = [*answers]
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self.url = f"gapless://127.0.0.1:{self._socket.getsockname()[1]}"
        self.accepted = 0
        threading.Thread(target=self._run, daemon=True).start()

    def close(self) -> None:
        self._socket.close()
        for each in self._open:
            each.close()

    def _run(self) -> None:
        try:
            while True:
                made, _ = self._socket.accept()
                self._open.append(made)
                threading.Thread(target=self._serve, args=[made], daemon=True).start()
        except OSError:
            pass  # the test is over

    def _serve(self, made: socket.socket) -> None:
        try:
            _frame(made)
            connected = Connected(VERSIONS[-1], "b1", "c1", FRAME_BYTES_MAX, keepalive_ms=50)
            made.sendall(encode_handshake(connected))
            self.accepted += 1
            while True:
                request = CLIENT_REQUESTS.decode(_frame(made))
                assert isinstance(request, ReadLog)
                answer = self._answers.pop(0)(request.request)
                if answer is not None:
                    made.sendall(CLIENT_NOTICES.encode(answer))
        except (OSError, EOFError):
            pass  # the client has disconnected


def _frame(made: socket.socket) -> bytes:
    with made.makefile("rb", buffering=0) as reader:
        header = reader.read(HEADER_BYTES)
        if not header:
            raise EOFError
        return reader.read(int.from_bytes(header, "big")) or b""


def silence(_: int) -> None:
    return None


def done(number: int) -> ReadPart:
    return ReadPart(number, (), 10, 10, 0, ())


def refused(number: int) -> Refused:
    return Refused(number, "not here")


@pytest.fixture
def start_broker() -> Iterator[Callable[..., ScriptedBroker]]:
    made: list[ScriptedBroker] = []

    def make(*answers: Answer) -> ScriptedBroker:
        made.append(ScriptedBroker(*answers))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the time after which a silent broker is given up."""
    monkeypatch.setattr(line, "_SILENCE_S", 0.2)


def answered(deadline_s: float, *where: str) -> ReadPart:
    made = ReadConnection(where, deadline_s)
    try:
        made.request(ReadLog(0, PubendId("quotes"), "TRUE", 1, 10, 1_000))
        return made.answer()
    finally:
        made.close()


@pytest.mark.usefixtures("short_waits")
def test_a_silent_connection_is_replaced_long_before_the_deadline(
    start_broker: Callable[..., ScriptedBroker],
) -> None:
    half_open = start_broker(silence, done)
    started = monotonic()
    assert answered(60.0, half_open.url).done == 10
    assert monotonic() - started < 30
    assert half_open.accepted == 2


@pytest.mark.usefixtures("short_waits")
def test_a_broker_that_sends_keepalives_is_awaited_until_the_deadline(
    start_broker: Callable[..., ScriptedBroker],
) -> None:
    busy = start_broker()
    busy._answers.append(lambda _: _send_keepalives(busy))
    made = ReadConnection((busy.url,), 1.0)
    made.request(ReadLog(0, PubendId("quotes"), "TRUE", 1, 10, 1_000))
    with pytest.raises(TimeoutError, match="was not read"):
        made.answer()
    made.close()
    assert busy.accepted == 1


def _send_keepalives(busy: ScriptedBroker) -> None:
    """Send keepalives for longer than the deadline."""
    over = threading.Event()
    for _ in range(40):
        busy._open[0].sendall(CLIENT_NOTICES.encode(KeepAlive()))
        over.wait(0.05)


def test_after_a_refusal_the_next_address_is_used(
    start_broker: Callable[..., ScriptedBroker],
) -> None:
    first, other = start_broker(refused), start_broker(done)
    assert answered(30.0, first.url, other.url).done == 10


def test_after_a_failed_dial_the_next_address_is_used_and_later_the_first_again(
    start_broker: Callable[..., ScriptedBroker],
) -> None:
    first, other = start_broker(done), start_broker(done)
    made = ReadConnection((first.url, other.url), 30.0)
    made.request(ReadLog(0, PubendId("quotes"), "TRUE", 1, 10, 1_000))
    next(made._addresses)  # as if no broker were at the first address
    assert made.answer().done == 10
    assert (first.accepted, other.accepted) == (0, 1)
    made.close()  # the connection is lost
    assert made.answer().done == 10
    assert (first.accepted, other.accepted) == (1, 1)
    made.close()
