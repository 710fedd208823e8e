"""``gapless token``, and overlays of real processes that require tokens."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any

import pytest
import typer.main

import gapless as library
from gapless.cli.main import EXIT_REFUSED, EXIT_WRONG_INPUT, app, main
from gapless.runtime.principals import load_tokens
from gapless.wire import digest_of, read_tokens
from tests.cli.overlays import events, gapless, overlay, running


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GAPLESS_TOKEN", "GAPLESS_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


def printed(capsys: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capsys.readouterr().out)


def test_a_new_token_is_in_a_private_file_and_its_digest_in_the_token_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["token", "new", "alice"]) == 0
    output = capsys.readouterr()
    secret = tmp_path / "alice.token"
    (token,) = read_tokens(secret)
    assert secret.stat().st_mode & 0o777 == 0o600
    (entry,) = load_tokens(tmp_path / "tokens.toml")
    assert (entry.principal, entry.sha256) == ("alice", digest_of(token).hex())
    assert token not in output.out + output.err + (tmp_path / "tokens.toml").read_text()


def test_the_secret_of_brokers_is_created_once_in_a_private_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["token", "broker", "--json"]) == 0
    path = tmp_path / "broker.token"
    assert printed(capsys) == {"secret_in": "broker.token"}
    assert path.stat().st_mode & 0o777 == 0o600
    (secret,) = read_tokens(path)
    assert main(["token", "broker"]) == EXIT_WRONG_INPUT
    assert read_tokens(path) == (secret,)


def test_tokens_are_listed_and_removed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = ("--tokens", str(tmp_path / "t.toml"))
    for number, until in enumerate(("2001-01-31T00:00Z", "2101-01-31T09:30+02:00")):
        out = str(tmp_path / f"{number}")
        command = ["token", "new", "alice", *file, "--out", out, "--expires", until, "--json"]
        assert main(command) == 0
        made = printed(capsys)
        assert made["secret_in"] == out
        assert read_tokens(Path(out))[0] not in json.dumps(made)
    assert main(["token", "new", "bob", *file]) == 0
    capsys.readouterr()
    assert main(["token", "ls", *file, "--json"]) == 0
    first, second, third = printed(capsys)["tokens"]
    assert [each["expired"] for each in (first, second, third)] == [True, False, False]
    assert (second["expires"], third["expires"]) == ("2101-01-31T09:30:00+02:00", None)
    assert main(["token", "ls", *file]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == [
        *("principal", "alice", "alice", "bob")
    ]
    assert main(["token", "rm", "alice", "--id", first["id"], *file, "--json"]) == 0
    assert printed(capsys)["removed"] == [first]
    assert main(["token", "rm", "alice", *file]) == 0
    assert [each.principal for each in load_tokens(tmp_path / "t.toml")] == ["bob"]
    assert main(["token", "rm", "alice", *file]) == EXIT_WRONG_INPUT


def test_a_time_without_a_zone_is_local_time(tmp_path: Path) -> None:
    assert main(["token", "new", "alice", "--expires", "2101-01-31"]) == 0
    (entry,) = load_tokens(tmp_path / "tokens.toml")
    assert entry.expires == dt.datetime(2101, 1, 31).astimezone()


@pytest.mark.parametrize(
    "command", [["*"], ["two words"], ["a/b"], ["alice", "--expires", "soon"]], ids=" ".join
)
def test_a_refused_token_leaves_no_file(tmp_path: Path, command: list[str]) -> None:
    assert main(["token", "new", *command]) == EXIT_WRONG_INPUT
    assert not [*tmp_path.iterdir()]


def test_a_secret_is_not_overwritten_and_not_kept_without_its_digest(tmp_path: Path) -> None:
    assert main(["token", "new", "alice"]) == 0
    before = (tmp_path / "alice.token").read_text()
    assert main(["token", "new", "alice"]) == EXIT_WRONG_INPUT
    assert (tmp_path / "alice.token").read_text() == before
    assert len(load_tokens(tmp_path / "tokens.toml")) == 1
    (tmp_path / "tokens.toml").write_text("[[tokens")
    assert main(["token", "new", "bob"]) == EXIT_WRONG_INPUT
    assert not (tmp_path / "bob.token").exists()


def test_a_token_for_operators_is_marked_and_listed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["token", "new", "ops", "--operator", "--json"]) == 0
    assert printed(capsys)["operator"]
    assert main(["token", "new", "alice", "--json"]) == 0
    assert not printed(capsys)["operator"]
    assert [each.operator for each in load_tokens(tmp_path / "tokens.toml")] == [True, False]
    assert main(["token", "ls"]) == 0
    rows = capsys.readouterr().out.splitlines()[1:]
    assert [line.split()[-1] for line in rows] == ["yes", "no"]


def test_every_command_that_connects_has_a_token_file_option() -> None:
    found = {}

    def walk(command: Any, path: str) -> None:
        for name, each in getattr(command, "commands", {}).items():
            walk(each, f"{path} {name}")
        options = {name for each in command.params for name in each.opts}
        if "--url" in options:
            found[path.strip()] = "--token-file" in options

    walk(typer.main.get_command(app), "")
    assert len(found) >= 13
    assert all(found.values()), found


def test_an_overlay_with_tokens_refuses_clients_without_one_and_shows_no_secret(
    tmp_path: Path,
) -> None:
    for name in ("feed", "desk"):
        assert main(["token", "new", name]) == 0
    data = tmp_path / "data"
    feed, desk = ("--token-file", "feed.token"), ("--token-file", "desk.token")
    with overlay("--data", str(data), "--tokens", "tokens.toml", topology="line:2") as brokers:
        pub = ("pub", "-p", "quotes", "--url", brokers.url(0))
        refused = gapless(*pub, lines=events(1))
        assert refused.returncode == EXIT_REFUSED
        assert "requires a token" in refused.stderr
        sub = ("sub", "n >= 0", "--start", "earliest", "--url", brokers.url(1))
        with running(*sub, *desk) as reader:
            # links use a generated secret
            assert gapless(*pub, *feed, lines=events(1)).returncode == 0
            assert reader.line()["attributes"]["n"] == 1
            brokers.kill(1)
            brokers.await_stage("ready")
            assert gapless(*pub, *feed, lines=events(2)).returncode == 0
            assert reader.line()["attributes"]["n"] == 2, "it has reconnected with its token"
        for command in (
            ["status"],
            ["subscriptions"],
            ["topo", "show"],
            ["durable", "ls"],
            ["partitions"],
        ):
            to = ("--url", brokers.url(0))
            assert gapless(*command, *to).returncode == EXIT_REFUSED
            assert gapless(*command, *to, *desk).returncode == 0
        retire = gapless("retire", "b9", "--cell", "c9", "--url", brokers.url(0), *desk)
        assert retire.returncode == EXIT_REFUSED
        assert "gapless token new PRINCIPAL --operator" in retire.stderr
        assert main(["token", "rm", "desk"]) == 0
        assert gapless("status", "--url", brokers.url(0), *desk).returncode == EXIT_REFUSED
        arguments = [
            Path(f"/proc/{each}/cmdline").read_bytes().decode()
            for each in (brokers.pid(0), brokers.command.process.pid)
        ]
    secret = data / "broker.token"
    assert secret.stat().st_mode & 0o777 == 0o600
    secrets = [
        *read_tokens(secret),
        *read_tokens(Path("feed.token")),
        *read_tokens(Path("desk.token")),
    ]
    shown = [path.read_text() for path in data.rglob("broker.log*")]
    shown += [path.read_text() for path in data.rglob("*.toml")]
    assert "connection is refused" in "".join(shown)
    stored = [path.read_bytes() for path in data.rglob("*") if path.is_file() and path != secret]
    for token in secrets:
        assert not [each for each in (*shown, *arguments, *brokers.command.errors) if token in each]
        assert not [each for each in stored if token.encode() in each]


def test_a_restarted_overlay_keeps_its_secret(tmp_path: Path) -> None:
    assert main(["token", "new", "alice"]) == 0
    options = ("--data", str(tmp_path / "data"), "--tokens", "tokens.toml")
    kept = []
    for _ in range(2):
        with overlay(*options, topology="line:2") as brokers:
            with library.connect_sync(brokers.url(), token_file=Path("alice.token")) as session:
                assert session.broker == "b1"
            kept.append((tmp_path / "data" / "broker.token").read_text())
    assert kept[0] == kept[1]


def test_up_refuses_an_invalid_token_file_before_it_starts_a_broker(
    tmp_path: Path,
) -> None:
    ran = gapless("up", "--port", "0", "--tokens", str(tmp_path / "nowhere.toml"))
    assert ran.returncode == EXIT_WRONG_INPUT
    assert "nowhere.toml cannot be read" in ran.stderr
