"""What ``gapless up`` writes, what it keeps, and which overlay it runs. No process is started."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gapless.core.errors import UsageError
from gapless.runtime import generate, load_config, load_overlay
from gapless.runtime.overlay_choice import choose_overlay
from gapless.runtime.overlay_config import OverlayConfig
from gapless.runtime.supervisor import Supervisor


@contextmanager
def taken(
    overlay: OverlayConfig, data: Path, *, port: int = 0, overwrite: bool = False
) -> Iterator[Supervisor]:
    """Let a supervisor write its files, without any process."""
    supervisor = Supervisor(overlay, data, port=port, overwrite=overwrite)
    supervisor.take_directory()
    try:
        yield supervisor
    finally:
        supervisor.release_directory()


def edit(path: Path, old: str, new: str) -> str:
    """Replace a text in a file; return the new content."""
    before = path.read_text()
    assert old in before
    path.write_text(before.replace(old, new))
    return path.read_text()


def test_files_that_nobody_edited_are_written_again(tmp_path: Path) -> None:
    overlay = generate("line:2")
    with taken(overlay, tmp_path) as first:
        addresses = first.overlay.addresses
    with taken(overlay, tmp_path) as second:
        assert second.kept_files == []
        assert second.overlay.addresses != addresses
    config = load_config(tmp_path / "b1" / "broker.toml")
    assert config.settings.listen == second["b1"].address


def test_an_edited_file_of_a_broker_is_kept_and_used(tmp_path: Path) -> None:
    overlay = generate("line:2")
    with taken(overlay, tmp_path) as first:
        address = first["b1"].address
    path = tmp_path / "b1" / "broker.toml"
    edited = path.read_text() + "\n[parameters]\nretention_s = 77\n"
    path.write_text(edited)
    with taken(overlay, tmp_path) as second:
        assert path.read_text() == edited
        assert second.kept_files == [path]
        assert second["b1"].address == address, "where the edited file has it"
        assert load_overlay(tmp_path / "overlay.toml").addresses["b1"] == address
        assert second["b2"].address != first["b2"].address
    assert load_config(path).settings.parameters.retention_s == 77


def test_an_edited_file_is_overwritten_only_on_request_and_moved_aside(tmp_path: Path) -> None:
    overlay = generate("line:1")
    with taken(overlay, tmp_path):
        pass
    path = tmp_path / "b1" / "broker.toml"
    edited = edit(path, 'level = "info"', 'level = "debug"')
    with taken(overlay, tmp_path, overwrite=True) as again:
        assert again.kept_files == []
    assert path.with_name("broker.toml.edited").read_text() == edited
    assert load_config(path).log.level == "info"
    newer = edit(path, 'level = "info"', 'level = "error"')
    with taken(overlay, tmp_path, overwrite=True):
        pass
    assert path.with_name("broker.toml.edited").read_text() == edited, "it is not overwritten"
    assert path.with_name("broker.toml.edited.2").read_text() == newer


def test_an_invalid_edited_file_is_named_before_anything_starts(tmp_path: Path) -> None:
    overlay = generate("line:1")
    with taken(overlay, tmp_path):
        pass
    path = tmp_path / "b1" / "broker.toml"
    path.write_text("nonsense = 1")
    with pytest.raises(UsageError, match=f"{re.escape(str(path))}: there is no key `nonsense`"):
        Supervisor(overlay, tmp_path, port=0)


def test_an_edited_overlay_file_is_used_without_a_topology_and_not_contradicted(
    tmp_path: Path,
) -> None:
    with taken(choose_overlay("line:2", tmp_path), tmp_path) as first:
        addresses = first.overlay.addresses
    path = tmp_path / "overlay.toml"
    path.write_text(path.read_text() + "\n[parameters]\nretention_s = '2h'  # for audits\n")
    edited = path.read_text()
    with taken(choose_overlay(None, tmp_path), tmp_path) as second:
        assert second.overlay.parameters == {"retention_s": 7_200}
        assert second.overlay.addresses == addresses
        assert second.kept_files == [path]
        assert path.read_text() == edited
    other = choose_overlay(None, tmp_path, parameters=["retention_s=1h"])
    with (
        pytest.raises(UsageError, match=r"was edited, and its parameters differ.*--overwrite"),
        taken(other, tmp_path),
    ):
        pass
    assert path.read_text() == edited
    with taken(other, tmp_path, overwrite=True) as third:
        assert third.overlay.parameters == {"retention_s": 3_600}
    assert (tmp_path / "overlay.toml.edited").read_text() == edited


def test_parameters_stay_in_the_data_directory_until_they_are_changed(tmp_path: Path) -> None:
    def run(topology: str | None, *parameters: str) -> dict[str, bool | int]:
        overlay = choose_overlay(topology, tmp_path, parameters=parameters)
        with taken(overlay, tmp_path) as supervisor:
            found = load_config(tmp_path / "b1" / "broker.toml").settings.parameters
            assert {each: getattr(found, each) for each in supervisor.overlay.parameters} == (
                supervisor.overlay.parameters
            )
            return supervisor.overlay.parameters

    chosen = {"retention_s": 7_200, "log_bytes_max": 10**9}
    assert run("line:2", "retention_s=2h", "log_bytes_max=1GB") == chosen
    assert run(None) == chosen
    assert run("line:2") == chosen
    assert run(None, "retention_s=60") == {**chosen, "retention_s": 60}
    assert run(None, "log_bytes_max=default") == {"retention_s": 60}
    path = tmp_path / "mine.toml"
    path.write_text(generate("line:2").to_toml() + '\n[parameters]\nretention_s = "3h"\n')
    assert run(str(path)) == {"retention_s": 10_800}, "a file says everything"


def test_without_a_topology_the_tree_of_the_data_directory_is_run(tmp_path: Path) -> None:
    assert len(choose_overlay(None, tmp_path).brokers) == 3
    with taken(choose_overlay("star:5", tmp_path, delta=2), tmp_path):
        pass
    found = choose_overlay(None, tmp_path)
    assert (len(found.brokers), found.delta, found.addresses) == (5, 2, {})


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["heartbeat_ms=5s"], "4 heartbeat_ms (20000 ms) must be less than session_timeout_ms"),
        (["delta=2"], "use --delta"),
        (["retention=2h"], "there is no parameter retention; did you mean retention_s"),
    ],
)
def test_invalid_parameters_are_refused_before_anything_starts(
    options: list[str], problem: str
) -> None:
    with pytest.raises(UsageError, match=re.escape(problem)):
        choose_overlay("line:1", None, parameters=options)


def test_a_used_port_is_refused_before_any_file_is_written(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as used:
        port = used.getsockname()[1]
        problem = f"cannot listen on 127.0.0.1:{port}: Address already in use"
        with (
            pytest.raises(UsageError, match=f"{problem}.*--port 0 for free ports"),
            taken(generate("line:1"), tmp_path, port=port),
        ):
            pass
    assert [each.name for each in tmp_path.iterdir()] == ["overlay.lock"]
    with taken(generate("line:1"), tmp_path, port=port):
        pass
