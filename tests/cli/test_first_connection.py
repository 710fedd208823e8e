"""The first connection of a command: a port where nobody listens fails at once."""

from __future__ import annotations

import asyncio
import json
import socket

import pytest

from gapless.cli import broker_calls
from gapless.cli.main import EXIT_NO_BROKER, main
from gapless.testing import SyncOverlay

Captured = pytest.CaptureFixture[str]


def closed_port() -> int:
    """Return a port where nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every wait for a first connection last for ever, unless the port is refused."""
    monkeypatch.setattr(broker_calls, "CONNECT_DEADLINE_S", 3_600.0)


COMMANDS = (
    ["status"],
    ["durable", "ls"],
    ["sub"],
    ["log", "read", "quotes"],
)


@pytest.mark.usefixtures("waits")
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_port_where_nobody_listens_fails_without_waiting(
    command: list[str], capsys: Captured
) -> None:
    port = closed_port()
    urls = f"gapless://127.0.0.1:{port},127.0.0.1:{closed_port()}"
    assert main([*command, "--url", urls, "--deadline", "3600", "--json"]) == EXIT_NO_BROKER
    problem = json.loads(capsys.readouterr().err)["error"]
    assert problem.startswith(f"no broker listens on 127.0.0.1:{port}, 127.0.0.1:")
    assert problem.endswith("start one there, or name another with --url")


@pytest.mark.usefixtures("waits")
def test_one_address_that_listens_is_enough(capsys: Captured) -> None:
    with SyncOverlay("line:1", on_disk=False) as brokers:
        url = f"gapless://127.0.0.1:{closed_port()},{brokers.url().removeprefix('gapless://')}"
        assert main(["status", "--url", url, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["broker"] == "b1"


@pytest.mark.usefixtures("waits")
def test_a_port_that_accepts_and_does_not_answer_is_not_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    probed: list[str] = []
    refuse = broker_calls._refuse_closed_ports

    async def probe(url: str) -> None:
        await refuse(url)
        probed.append(url)
        raise asyncio.CancelledError  # otherwise the command would wait for the handshake

    monkeypatch.setattr(broker_calls, "_refuse_closed_ports", probe)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"gapless://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(asyncio.CancelledError):
            broker_calls.call_broker(url, lambda session: session.open(), deadline_s=3_600)
    assert probed == [url]
