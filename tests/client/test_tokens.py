"""Clients of brokers that require tokens."""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
from pathlib import Path

import pytest

import gapless
from gapless.client.credentials import Credentials
from gapless.core.address import Address
from gapless.core.limits import TOKEN_CHARACTERS_MAX
from gapless.errors import AuthenticationError, ConnectionLostError, UsageError
from gapless.runtime.principals import remove_tokens
from gapless.testing import Overlay, SyncOverlay
from gapless.wire import Disconnect, DisconnectReason, new_token, read_tokens
from tests.client.running import async_test, soon
from tests.client.scripted import ScriptedBroker, ScriptedConnection
from tests.tokens import Principals

SESAME = "sesame"
QUICK = gapless.Backoff(first_s=0.002, longest_s=0.02)


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GAPLESS_TOKEN", "GAPLESS_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def principals(tmp_path: Path) -> Principals:
    return Principals(tmp_path, "alice", "bob")


async def open_session(url: str, **options: str | Path) -> None:
    async with gapless.connect(url, backoff=QUICK, **options):  # type: ignore[arg-type]
        pass


@async_test
async def test_a_client_authenticates_with_a_token_a_file_or_the_environment(
    principals: Principals,
) -> None:
    token, path = principals["alice"], principals.file_of("alice")
    async with Overlay(on_disk=False, tokens=principals.path) as overlay:
        await open_session(overlay.url(), token=token)
        await open_session(overlay.url(), token_file=path)
        await open_session(overlay.url(), token_file=str(path))
        for name, value in (("GAPLESS_TOKEN", token), ("GAPLESS_TOKEN_FILE", str(path))):
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv(name, value)
                await open_session(overlay.url())
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("GAPLESS_TOKEN", new_token())
            await open_session(overlay.url(), token=token)
            with pytest.raises(AuthenticationError):
                await open_session(overlay.url())


def test_the_synchronous_client_authenticates_too(principals: Principals) -> None:
    with SyncOverlay(on_disk=False, tokens=principals.path) as overlay:
        with gapless.connect_sync(overlay.url(), token=principals["alice"]) as session:
            assert session.broker == "b1"
        with gapless.connect_sync(overlay.url(), token_file=principals.file_of("bob")):
            pass
        with (
            pytest.raises(AuthenticationError, match="requires a token"),
            gapless.connect_sync(overlay.url()),
        ):
            pass


@async_test
async def test_a_client_that_is_not_authenticated_fails_at_once_without_retries(
    principals: Principals,
) -> None:
    wrong = new_token()
    async with Overlay(on_disk=False, tokens=principals.path) as overlay:
        for token in (None, wrong):
            before = overlay.node("b1").acceptor.refused
            with pytest.raises(AuthenticationError) as caught:
                # no deadline: a client that tried again would never end
                async with gapless.connect(overlay.url(), connect_deadline_s=None, token=token):
                    pass
            assert overlay.node("b1").acceptor.refused == before + 1
            assert wrong not in str(caught.value)


@async_test
async def test_a_client_refused_by_one_broker_connects_to_the_next() -> None:
    def deny(connection: ScriptedConnection) -> None:
        connection.send_handshake(Disconnect(DisconnectReason.NOT_AUTHENTICATED, "not known here"))

    async with ScriptedBroker("b1") as first, ScriptedBroker("b2") as second:
        first.on_connect = deny
        async with gapless.connect([first.url, second.url], backoff=QUICK, token=SESAME) as session:
            assert session.broker == "b2"
        second.on_connect = deny
        with pytest.raises(AuthenticationError, match="not known here"):
            await open_session(f"{first.url},{second.url.removeprefix('gapless://')}", token=SESAME)


@async_test
async def test_a_client_retries_while_the_broker_cannot_read_its_token_file(
    principals: Principals,
) -> None:
    sound = principals.path.read_text()
    async with Overlay(on_disk=False, tokens=principals.path) as overlay:
        principals.path.write_text("[[tokens")
        with pytest.raises(ConnectionLostError, match="cannot read its token file"):
            async with gapless.connect(
                overlay.url(), token=principals["alice"], connect_deadline_s=0.2, backoff=QUICK
            ):
                pass
        opening = asyncio.create_task(open_session(overlay.url(), token=principals["alice"]))
        refused = overlay.node("b1").acceptor.refused
        await soon(lambda: overlay.node("b1").acceptor.refused > refused + 1)
        principals.path.write_text(sound)
        await opening


@async_test
async def test_removing_a_token_ends_the_session_at_its_next_reconnect(
    principals: Principals,
) -> None:
    async with Overlay(tokens=principals.path) as overlay:
        async with (
            gapless.connect(overlay.url(), token=principals["alice"], backoff=QUICK) as session,
            session.publisher("quotes") as publisher,
            session.subscribe("n > 0") as events,
        ):
            await publisher.publish({"n": 1})
            assert (await events.get()).attributes["n"] == 1
            remove_tokens(principals.path, "alice")
            await publisher.publish({"n": 2})
            assert (await events.get()).attributes["n"] == 2
            await overlay.restart("b1")
            with pytest.raises(AuthenticationError, match="does not know the token"):
                await events.get()
            with pytest.raises(AuthenticationError, match="does not know the token"):
                await publisher.publish({"n": 3})


@async_test
async def test_a_token_file_is_read_for_every_connection(principals: Principals) -> None:
    path = principals.file_of("alice")
    async with Overlay(tokens=principals.path) as overlay:
        async with (
            gapless.connect(overlay.url(), token_file=path, backoff=QUICK) as session,
            session.publisher("quotes") as publisher,
        ):
            await publisher.publish({"n": 1})
            remove_tokens(principals.path, "alice")
            path.write_text(principals["bob"] + "\n")
            await overlay.restart("b1")
            await publisher.publish({"n": 2})


@async_test
async def test_an_overlay_with_tokens_delivers_events_through_a_crash_and_a_failover(
    principals: Principals,
) -> None:
    async with Overlay("line:2x2", tokens=principals.path) as overlay:
        async with (
            gapless.connect(overlay.url("b1a"), token=principals["alice"], backoff=QUICK) as near,
            gapless.connect(
                overlay.url("b2a", "b2b"),
                token=principals["bob"],
                backoff=QUICK,
                failover_after_s=0.05,
            ) as far,
            near.publisher("quotes") as publisher,
            far.subscribe("n >= 0", durable="desk", start="earliest") as events,
        ):
            await soon(lambda: "quotes" in events.position)
            for n in range(30):
                await publisher.publish({"n": n})
                if n == 10:
                    await overlay.restart("b1a")
                if n == 20:
                    await overlay.kill("b2a")
            assert [(await events.get()).attributes["n"] for _ in range(30)] == [*range(30)]


# --- invalid tokens ------------------------------------------------------------------------------------


@pytest.mark.parametrize("token", ["", "two words", "ü", "a\nb", "x" * (TOKEN_CHARACTERS_MAX + 1)])
def test_an_invalid_token_is_refused_and_not_quoted(tmp_path: Path, token: str) -> None:
    with pytest.raises(UsageError, match="token") as caught:
        gapless.connect("gapless://127.0.0.1", token=token)
    assert not token or token not in str(caught.value)
    path = tmp_path / "token"
    path.write_text(token)
    with pytest.raises(UsageError, match="token") as caught:
        read_tokens(path)
    assert str(path) in str(caught.value)
    assert not token.strip() or token not in str(caught.value)


def test_a_token_and_a_token_file_together_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not both"):
        gapless.connect("gapless://127.0.0.1", token=SESAME, token_file=tmp_path)


@async_test
async def test_a_missing_token_file_is_reported_before_dialling(tmp_path: Path) -> None:
    async with ScriptedBroker() as broker:
        with pytest.raises(UsageError, match="nowhere cannot be read"):
            await open_session(broker.url, token_file=tmp_path / "nowhere")
        assert not broker.connections


# --- secrets -------------------------------------------------------------------------------------------


@async_test
async def test_no_token_is_in_the_repr_or_the_logs_of_a_session(
    principals: Principals, caplog: pytest.LogCaptureFixture
) -> None:
    token = principals["alice"]
    with caplog.at_level(logging.DEBUG):
        async with (
            Overlay(on_disk=False, tokens=principals.path) as overlay,
            gapless.connect(overlay.url(), token=token) as session,
        ):
            shown = [repr(session), repr(session._options), repr(session.main)]
            shown.append(repr(session.main._connection))
    shown += [repr(Credentials(token=token)), str(Credentials(token=token))]
    shown += [f"{each.getMessage()} {vars(each)}" for each in caplog.records]
    assert not [each for each in shown if token in each]
    assert pickle.loads(pickle.dumps(Credentials(token=token))).token == token


def test_a_token_sent_to_another_computer_is_warned_of_once_per_address(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING, "gapless.client"):
        for host in ("127.0.0.1", "::1", "localhost", "192.0.2.7", "192.0.2.7"):
            assert Credentials(token=SESAME).token_for(Address(host, 7400)) == SESAME
            assert Credentials().token_for(Address(host, 7400)) == ""
    (record,) = caplog.records
    assert "192.0.2.7:7400" in record.getMessage()
    assert SESAME not in record.getMessage()
    assert "GAPLESS_TOKEN" not in os.environ
