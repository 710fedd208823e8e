"""Authentication: clients by their tokens, brokers by their shared secret."""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gapless.core.errors import UsageError
from gapless.core.limits import TOKEN_CHARACTERS_MAX, TOKENS_BYTES_MAX
from gapless.core.parameters import Parameters
from gapless.runtime.authentication import (
    AccessOptions,
    AuthenticationDenial,
    Authenticator,
    ClientIdentity,
)
from gapless.runtime.config import load_config
from gapless.runtime.logs import StructuredLog
from gapless.runtime.principals import (
    TokenEntry,
    add_token,
    load_tokens,
    remove_tokens,
    write_secret,
)
from gapless.wire import (
    Connect,
    Connected,
    Disconnect,
    DisconnectReason,
    Role,
    decode_handshake,
    new_token,
)
from tests.runtime.nodes import World, run, until
from tests.runtime.raw_client import RawClient
from tests.tokens import Principals

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

QUICK = Parameters(redial_ms=5, redial_max_ms=20)
TOMORROW = dt.datetime.now(dt.UTC) + dt.timedelta(days=1)
YESTERDAY = dt.datetime.now(dt.UTC) - dt.timedelta(days=1)


@asynccontextmanager
async def guarded(
    words: str, access: Callable[[str], AccessOptions | None]
) -> AsyncIterator[World]:
    """Start nodes with the given access options."""
    made = World(words, None, QUICK)
    try:
        for name, _ in made.overlay.brokers:
            await made.start(name, access=access(name))
        yield made
    finally:
        for node in made.nodes.values():
            await node.stop()


async def answer(url: str, token: str = "", role: Role = Role.CLIENT, name: str = "x") -> object:
    """Send a Connect; return the reply of the broker."""
    client = RawClient(url)
    await client.connect()
    try:
        client.send_handshake(Connect(role, name, overlay="gapless", token=token))
        return decode_handshake(await client.body())
    finally:
        await client.close()


async def denied(url: str, token: str = "", role: Role = Role.CLIENT, name: str = "x") -> str:
    """Return the reason of the refusal."""
    output = await answer(url, token, role, name)
    assert isinstance(output, Disconnect), output
    assert output.code is DisconnectReason.NOT_AUTHENTICATED, output
    assert not token or token not in output.reason
    return output.reason


def alone(principals: Principals, work: Callable[[World], Awaitable[None]]) -> None:
    """Run a scenario with one broker that requires tokens."""

    async def scenario() -> None:
        options = AccessOptions(tokens=str(principals.path))
        async with guarded("line:1", lambda _: options) as brokers:
            await work(brokers)

    run(scenario())


def test_a_broker_without_a_token_file_accepts_every_client() -> None:
    async def scenario() -> None:
        async with guarded("line:1", lambda _: None) as brokers:
            for token in ("", "sesame"):
                assert isinstance(await answer(brokers["b1"].url, token), Connected)

    run(scenario())


def test_a_client_is_accepted_with_any_of_its_tokens_only(tmp_path: Path) -> None:
    principals = Principals(tmp_path, "alice", "bob")
    first = principals["alice"]
    principals.add("alice", expires=TOMORROW)

    async def work(brokers: World) -> None:
        url = brokers["b1"].url
        for token in (first, principals["alice"], principals["bob"]):
            assert isinstance(await answer(url, token), Connected)
        assert "requires a token" in await denied(url)
        assert "--token-file" in await denied(url)
        for wrong in (new_token(), first[:-1], first.upper(), "x" * (TOKEN_CHARACTERS_MAX + 1)):
            assert "does not know the token" in await denied(url, wrong)
        digest = load_tokens(principals.path)[0].sha256
        assert "does not know the token" in await denied(url, digest)
        assert brokers["b1"].acceptor.refused == 7

    alone(principals, work)


def test_frames_after_a_refused_token_are_ignored(tmp_path: Path) -> None:
    async def work(brokers: World) -> None:
        client = RawClient(brokers["b1"].url)
        await client.connect()
        client.send_handshake(Connect(Role.CLIENT, "x", token=new_token()))
        client.send_handshake(Connect(Role.CLIENT, "x", token=principals["alice"]))
        output = decode_handshake(await client.body())
        assert isinstance(output, Disconnect)
        assert output.code is DisconnectReason.NOT_AUTHENTICATED
        await client.close()
        assert not len(brokers["b1"].clients)

    principals = Principals(tmp_path, "alice")
    alone(principals, work)


def test_a_token_is_valid_until_it_expires_and_the_refusal_names_the_time(tmp_path: Path) -> None:
    principals = Principals(tmp_path)
    token = principals.add("alice", expires=TOMORROW)
    now = TOMORROW - dt.timedelta(microseconds=1)
    guard = Authenticator(AccessOptions(tokens=str(principals.path)), StructuredLog(), lambda: now)
    assert guard.authenticate_client(token) == ClientIdentity("alice", is_operator=False)
    now = TOMORROW
    output = guard.authenticate_client(token)
    assert isinstance(output, AuthenticationDenial)
    assert output.code is DisconnectReason.NOT_AUTHENTICATED
    assert TOMORROW.isoformat() in output.reason


def test_a_changed_token_file_applies_from_the_next_connection(tmp_path: Path) -> None:
    principals = Principals(tmp_path, "alice")

    async def work(brokers: World) -> None:
        url = brokers["b1"].url
        there = RawClient(url, token=principals["alice"])
        async with there:
            bob = principals.add("bob")
            assert isinstance(await answer(url, bob), Connected)
            remove_tokens(principals.path, "alice")
            assert "does not know" in await denied(url, principals["alice"])
            # a connected client stays connected
            await there.open("quotes")

    alone(principals, work)


@pytest.mark.parametrize("corruption", ["[[tokens", '[[tokens]]\nprincipal = "alice"\n', None])
def test_an_invalid_token_file_refuses_new_clients_and_keeps_connected_ones(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, corruption: str | None
) -> None:
    principals = Principals(tmp_path, "alice")
    sound = principals.path.read_text()

    async def work(brokers: World) -> None:
        url = brokers["b1"].url
        async with RawClient(url, token=principals["alice"]) as there:
            if corruption is None:
                principals.path.unlink()
            else:
                principals.path.write_text(corruption)
            for _ in range(2):
                output = await answer(url, principals["alice"])
                assert isinstance(output, Disconnect)
                assert output.code is DisconnectReason.AUTHENTICATION_UNAVAILABLE
            await there.open("quotes")
            principals.path.write_text(sound)
            assert isinstance(await answer(url, principals["alice"]), Connected)

    with caplog.at_level(logging.ERROR, "gapless"):
        alone(principals, work)
    (record,) = [each for each in caplog.records if "cannot be read" in each.message]
    assert str(principals.path) in str(record.gapless_fields)  # type: ignore[attr-defined]


def test_a_broker_does_not_start_without_its_token_file(tmp_path: Path) -> None:
    options = AccessOptions(tokens=str(tmp_path / "nowhere.toml"))
    with pytest.raises(UsageError, match=r"nowhere\.toml cannot be read"):
        Authenticator(options, StructuredLog())


@pytest.mark.parametrize(
    ("content", "output"),
    [
        ('[[tokens]]\nprincipal = "a"\nsha256 = "sesame"\n', "sha256 is invalid: .* matches"),
        ('[[tokens]]\nprincipal = ["sesame"]\nsha256 = "a"\n', "principal is invalid: .* a text"),
        (
            f'[[tokens]]\nprincipal = "a"\nsha256 = "{"0" * 64}"\nexpires = "sesame"\n',
            "expires is invalid: it must be a date and time",
        ),
        ('tokens = "sesame"\n', "tokens is invalid: it must be a list"),
        (f'[[tokens]]\nprincipal = "*"\nsha256 = "{"0" * 64}"\n', "no name of a principal"),
        (f'[[tokens]]\nprincipal = "a b"\nsha256 = "{"0" * 64}"\n', "no name of a principal"),
        (
            f'[[tokens]]\nprincipal = "a"\nsha256 = "{"0" * 64}"\nexpires = 2027-01-01T00:00:00\n',
            "needs a time zone",
        ),
        (f'[[tokens]]\nprincipal = "a"\nsha256 = "{"0" * 64}"\ntoken = "sesame"\n', "no key"),
        ("#" * (TOKENS_BYTES_MAX + 1), "may have"),
    ],
)
def test_an_invalid_entry_of_the_token_file_is_named_without_its_secret(
    tmp_path: Path, content: str, output: str
) -> None:
    path = tmp_path / "tokens.toml"
    path.write_text(content)
    with pytest.raises(UsageError, match=output) as caught:
        load_tokens(path)
    assert "sesame" not in str(caught.value)
    assert str(path) in str(caught.value)


# --- changing the file ----------------------------------------------------------------------------------


def test_tokens_are_added_to_a_file_and_removed_by_name_or_id(tmp_path: Path) -> None:
    path = tmp_path / "tokens.toml"
    path.write_text("# ours\n")
    path.chmod(0o640)
    entries = [
        TokenEntry(principal=name, sha256=f"{digit}" * 64, expires=expires)
        for digit, (name, expires) in enumerate(
            [("alice", None), ("bob", TOMORROW), ("alice", None)]
        )
    ]
    for entry in entries:
        add_token(path, entry)
    assert path.read_text().startswith("# ours\n")
    assert path.stat().st_mode & 0o777 == 0o640
    assert load_tokens(path) == entries
    assert remove_tokens(path, "alice", "2") == [entries[2]]
    assert load_tokens(path) == entries[:2]
    with pytest.raises(UsageError, match="no token of alice"):
        remove_tokens(path, "alice", "2")
    remove_tokens(path, "bob")
    assert load_tokens(path) == entries[:1]
    assert [each.name for each in tmp_path.iterdir()] == ["tokens.toml"]


def test_a_token_file_that_cannot_be_read_is_not_changed(tmp_path: Path) -> None:
    path = tmp_path / "tokens.toml"
    path.write_text("[[tokens")
    with pytest.raises(UsageError, match="is not TOML"):
        add_token(path, TokenEntry(principal="alice", sha256="0" * 64))
    assert path.read_text() == "[[tokens"


# --- brokers ----------------------------------------------------------------------------------------------


def secret_in(directory: Path, name: str, *secrets: str) -> str:
    path = directory / name
    path.write_text("".join(f"{each}\n" for each in secrets))
    return str(path)


def test_brokers_with_the_same_secret_have_a_link(tmp_path: Path) -> None:
    principals = Principals(tmp_path, "alice")
    secret = secret_in(tmp_path, "broker.token", new_token())
    options = AccessOptions(tokens=str(principals.path), broker_token=secret)

    async def scenario() -> None:
        async with guarded("line:2", lambda _: options) as brokers:
            await until(lambda: brokers["b2"].links.open_peers == ["b1"])
            token = principals["alice"]
            async with (
                RawClient(brokers["b1"].url, token=token) as feed,
                RawClient(brokers["b2"].url, token=token) as tape,
            ):
                opened = await feed.open("quotes")
                await brokers.knows("b2", "quotes")
                await tape.subscribe("all")
                await feed.publish("quotes", opened.session, 1, 3)
                assert await tape.events(3) == [1, 2, 3]

    run(scenario())


@pytest.mark.parametrize(
    ("token", "output"),
    [(new_token(), "the broker token is not valid"), ("", "brokers need a token")],
    ids=["another", "none"],
)
def test_a_broker_with_another_secret_or_none_gets_no_link(
    tmp_path: Path, token: str, output: str
) -> None:
    principals = Principals(tmp_path, "alice")
    ours = secret_in(tmp_path, "ours.token", new_token())
    theirs = secret_in(tmp_path, "theirs.token", token) if token else ""

    def access(name: str) -> AccessOptions | None:
        if name == "b2":
            return AccessOptions(tokens=str(principals.path), broker_token=ours)
        return AccessOptions(broker_token=theirs) if theirs else None

    async def scenario() -> None:
        async with guarded("line:2", access) as brokers:
            await until(lambda: brokers["b2"].acceptor.refused >= 2)
            assert brokers["b2"].links.open_peers == brokers["b1"].links.open_peers == []
            assert output in await denied(brokers["b2"].url, token, Role.BROKER, "b1")

    run(scenario())


def test_a_client_token_does_not_admit_a_broker_and_a_secret_does_not_admit_a_client(
    tmp_path: Path,
) -> None:
    principals = Principals(tmp_path, "alice")
    secret = new_token()
    options = AccessOptions(
        tokens=str(principals.path), broker_token=secret_in(tmp_path, "broker.token", secret)
    )

    async def scenario() -> None:
        async with guarded("line:2", lambda _: options) as brokers:
            url = brokers["b2"].url
            assert "the broker token is not valid" in await denied(
                url, principals["alice"], Role.BROKER, "b1"
            )
            assert "does not know" in await denied(url, secret)
            assert isinstance(await answer(url, secret, Role.BROKER, "b1"), Connected)

    run(scenario())


def test_a_broker_without_a_secret_refuses_all_brokers(tmp_path: Path) -> None:
    principals = Principals(tmp_path, "alice")

    async def work(brokers: World) -> None:
        assert "no secret" in await denied(
            brokers["b1"].url, principals["alice"], Role.BROKER, "b0"
        )

    alone(principals, work)


def test_the_secret_of_brokers_can_be_replaced_while_they_run(tmp_path: Path) -> None:
    principals = Principals(tmp_path)
    old, new = new_token(), new_token()
    path = tmp_path / "broker.token"
    write_secret(path, old)
    guard = Authenticator(
        AccessOptions(tokens=str(principals.path), broker_token=str(path)), StructuredLog()
    )
    assert guard.own_token == old
    assert guard.authenticate_broker(new) is not None
    path.write_text(f"{old}\n{new}\n")
    assert (guard.own_token, guard.authenticate_broker(old), guard.authenticate_broker(new)) == (
        old,
        None,
        None,
    )
    path.write_text(f"{new}\n{old}\n")
    assert (guard.own_token, guard.authenticate_broker(old)) == (new, None)
    path.write_text(f"{new}\n")
    assert guard.authenticate_broker(old) is not None
    path.write_text("\n")
    assert guard.own_token == ""
    output = guard.authenticate_broker(new)
    assert output is not None
    assert output.code is DisconnectReason.AUTHENTICATION_UNAVAILABLE


def test_a_secret_without_a_token_file_is_sent_and_not_required(tmp_path: Path) -> None:
    secret = new_token()
    options = AccessOptions(broker_token=secret_in(tmp_path, "broker.token", secret))
    guard = Authenticator(options, StructuredLog())
    assert guard.own_token == secret
    assert not guard.is_required
    assert guard.authenticate_broker("") is None
    assert guard.authenticate_client("") == ClientIdentity()


# --- files of operators -------------------------------------------------------------------------------


def test_token_files_are_relative_to_the_configuration_file(tmp_path: Path) -> None:
    path = tmp_path / "b1.toml"
    path.write_text(
        'name = "b1"\ndata = "b1"\n[access]\ntokens = "t.toml"\nbroker_token = "b.token"'
    )
    access = load_config(path).settings.access
    assert access == AccessOptions(
        tokens=str(tmp_path / "t.toml"), broker_token=str(tmp_path / "b.token")
    )


def test_an_overlay_with_tokens_needs_a_secret_of_its_brokers(tmp_path: Path) -> None:
    (tmp_path / "o.toml").write_text('edges = [["c1", "c2"]]\n[cells]\nc1 = ["b1"]\nc2 = ["b2"]\n')
    path = tmp_path / "b1.toml"
    path.write_text('name = "b1"\ndata = "b1"\noverlay = "o.toml"\n[access]\ntokens = "t.toml"\n')
    with pytest.raises(UsageError, match=r"access\.broker_token"):
        load_config(path)


def test_an_access_table_without_a_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "b1.toml"
    path.write_text('name = "b1"\ndata = "b1"\n[access]\n')
    with pytest.raises(UsageError, match="name a file of tokens"):
        load_config(path)


# --- secrets ------------------------------------------------------------------------------------------


def test_no_token_is_in_the_logs_or_the_health_of_a_broker(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    principals = Principals(tmp_path, "alice")
    secret, wrong = new_token(), new_token()
    options = AccessOptions(
        tokens=str(principals.path), broker_token=secret_in(tmp_path, "broker.token", secret)
    )

    async def scenario() -> list[str]:
        async with guarded("line:2", lambda _: options) as brokers:
            await until(lambda: brokers["b2"].links.open_peers == ["b1"])
            url = brokers["b1"].url
            await denied(url, wrong)
            await denied(url, wrong, Role.BROKER, "b0")
            async with RawClient(url, token=principals["alice"]):
                node = brokers["b1"]
                return [repr(node.settings), str(node.health()), repr(vars(node._authenticator))]

    with caplog.at_level(logging.DEBUG):
        shown = run(scenario())
    shown.append(repr(Connect(Role.CLIENT, "x", token=wrong)))
    output = [f"{each.getMessage()} {vars(each)}" for each in caplog.records]
    assert any("principal" in each and "alice" in each for each in output)
    for token in (secret, wrong, principals["alice"]):
        assert not [each for each in (*output, *shown) if token in each]


def test_a_broker_open_to_other_computers_logs_whom_it_accepts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    from gapless.runtime import Address

    principals = Principals(tmp_path)

    async def scenario(access: AccessOptions | None) -> None:
        made = World("line:1", None, QUICK)
        node = await made.start("b1", access=access, listen=Address("0.0.0.0", 0))  # noqa: S104 - for a short time
        await node.stop()

    with caplog.at_level(logging.WARNING, "gapless"):
        run(scenario(None))
        run(scenario(AccessOptions(tokens=str(principals.path))))
    output = [str(vars(each)) for each in caplog.records if "open to other" in each.message]
    assert "anyone, with all rights" in output[0]
    assert "holders of a token" in output[1]
