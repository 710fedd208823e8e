"""Configuration files and topology words: read, or refused with the file, the key and the remedy."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gapless.core.errors import UsageError
from gapless.core.parameters import DEFAULTS
from gapless.runtime import (
    Address,
    LogFormat,
    config,
    generate,
    load_config,
    load_overlay,
    overlay_of,
)
from gapless.runtime import overlay_config as overlay_files

OVERLAY = """
overlay = "trading"
delta = 0
edges = [["paris", "london"]]
[cells]
paris = ["p1"]
london = ["l1", "l2"]
[addresses]
p1 = "10.0.0.1:7400"
"""


def sample(docstring: str | None) -> str:
    """Return the sample file of a docstring."""
    assert docstring is not None
    block = docstring.split("::\n", 1)[1]
    lines = [line for line in block.splitlines() if line.startswith("    ") or not line]
    return "\n".join(line.removeprefix("    ") for line in lines)


def written(directory: Path, text: str, name: str = "broker.toml") -> Path:
    path = directory / name
    path.write_text(text)
    return path


def test_the_samples_of_the_documentation_are_read(tmp_path: Path) -> None:
    overlay = load_overlay(written(tmp_path, sample(overlay_files.__doc__), "trading.toml"))
    assert overlay.name == "trading"
    assert [name for name, _ in overlay.brokers] == ["l1", "l2", "p1", "t1"]
    found = load_config(written(tmp_path, sample(config.__doc__)))
    assert found.settings.name == "l1"
    assert found.settings.cell == "london"
    assert found.settings.overlay == overlay
    assert found.settings.parameters.retention_s == 86_400
    assert found.settings.advertise == Address("l1.example", 7_400)
    assert found.log.format is LogFormat.TEXT


def test_a_broker_needs_only_a_name_and_a_directory(tmp_path: Path) -> None:
    found = load_config(written(tmp_path, 'name = "b7"\ndata = "store"')).settings
    assert found.listen == Address("127.0.0.1", 7_400)
    assert found.listen.is_loopback
    assert found.data == tmp_path / "store"
    assert found.parameters == DEFAULTS
    assert found.metrics is None
    assert found.overlay.brokers == [("b7", "c1")]


def test_delta_comes_from_the_overlay_file(tmp_path: Path) -> None:
    written(tmp_path, OVERLAY, "overlay.toml")
    path = written(tmp_path, 'name = "p1"\ndata = "d"\noverlay = "overlay.toml"')
    assert load_config(path).settings.parameters.delta == 0


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('data = "d"', "must be a key `name`"),
        ('name = "b1"', "must be a key `data`"),
        ('name = "b1"\ndata = "d"\nport = 1', "no key `port`; valid keys: name, data, overlay"),
        ('name = "b1"\ndata = 5', "at `data`"),
        ('name = "b1"\ndata = "d"\n[log]\nlevel = "loud"', "at `log.level`"),
        ('name = "b1"\ndata = "d"\n[log]\npath = "x"', "at `log`"),
        ('name = "b1"\ndata = "d"\nlisten = "nowhere:port"', "host:port"),
        ('name = "b1"\ndata = "d"\nlisten = "x:99999"', "host:port"),
        ('name = "b1"\ndata = "d"\n[parameters]\nheartbeat = 1', "no parameter heartbeat"),
        ('name = "b1"\ndata = "d"\n[parameters]\nheartbeat_ms = true', "a whole number"),
        ('name = "b1"\ndata = "d"\n[parameters]\nordered_sessions = 1', "true or false"),
        ('name = "b1"\ndata = "d"\n[parameters]\nheartbeat_ms = 9999', "session_timeout_ms"),
        ('name = "b1"\ndata = "d"\n[parameters]\nframe_bytes_max = 99999999', "8,388,608"),
        ('name = "b9"\ndata = "d"\noverlay = "overlay.toml"', "no broker b9"),
        ('name = "p1"\ndata = "d"\ncell = "rome"\noverlay = "overlay.toml"', "'paris'"),
        ('name = "p1"\ndata = "d"\noverlay = "overlay.toml"\n[parameters]\ndelta = 2', "delta"),
        ('name = "b@1"\ndata = "d"', "no name"),
        ("name = ", "is not TOML"),
    ],
)
def test_a_mistake_is_refused_with_the_file_and_the_remedy(
    tmp_path: Path, text: str, problem: str
) -> None:
    written(tmp_path, OVERLAY, "overlay.toml")
    path = written(tmp_path, text)
    with pytest.raises(UsageError, match=re.escape(problem)) as caught:
        load_config(path)
    assert str(path) in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"none\.toml cannot be read: No such file"):
        load_config(tmp_path / "none.toml")
    path = written(tmp_path, 'name = "b1"\ndata = "d"\noverlay = "gone.toml"')
    with pytest.raises(UsageError, match=r"gone\.toml cannot be read"):
        load_config(path)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (OVERLAY.replace('["paris", "london"]', '["paris", "rome"]'), "rome, which is no cell"),
        (OVERLAY.replace('"l1", "l2"', '"p1"'), "the broker p1 is in"),
        (OVERLAY + 'x9 = "10.0.0.9:1"', "x9, which is not a broker of any cell"),
        (OVERLAY.replace("edges", "edge"), "no key `edge`"),
        (OVERLAY.replace('[["paris", "london"]]', "[]"), "not connected"),
        ("edges = []", "must be a key `cells`"),
        (OVERLAY.replace("delta = 0", "delta = -1"), "delta is -1, and must be 0 to 16"),
        (OVERLAY.replace("delta = 0", "delta = 17"), "delta is 17, and must be 0 to 16"),
        (OVERLAY.replace('["p1"]', f'["{"p" * 256}"]').replace("p1 =", "l1 ="), "has 256 bytes"),
    ],
)
def test_a_mistake_in_the_overlay_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    path = written(tmp_path, text, "overlay.toml")
    with pytest.raises(UsageError, match=re.escape(problem)) as caught:
        load_overlay(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("name", ["../x", "x/y", "/", ".", "..", "a\\\\b", "a\\u0000", "a\\u202eb"])
def test_a_name_that_is_no_directory_name_is_refused(tmp_path: Path, name: str) -> None:
    for text in (f'[cells]\na = ["{name}"]\n', f'[cells]\n"{name}" = ["a"]\n'):
        path = written(tmp_path, text, "overlay.toml")
        with pytest.raises(UsageError, match="is no name of a cell or a broker") as caught:
            load_overlay(path)
        assert str(caught.value).startswith(f"{path}: ")
        assert str(caught.value).isprintable(), "one line, and nothing that a terminal would obey"


def test_names_may_have_the_characters_of_directory_names(tmp_path: Path) -> None:
    text = '[cells]\n"São Paulo" = ["b.1", "…", " ", "-x"]\n'
    overlay = load_overlay(written(tmp_path, text, "overlay.toml"))
    assert len(overlay.brokers) == 4


@pytest.mark.parametrize(
    ("words", "edges"),
    [
        ("line:1", set()),
        ("line:3", {("c1", "c2"), ("c2", "c3")}),
        ("star:4", {("c1", "c2"), ("c1", "c3"), ("c1", "c4")}),
        ("tree:3x1", set()),
        ("tree:1x3", {("c1", "c2"), ("c2", "c3")}),
        (
            "tree:2x3",
            {("c1", "c2"), ("c1", "c3"), ("c2", "c4"), ("c2", "c5"), ("c3", "c6"), ("c3", "c7")},
        ),
    ],
)
def test_topology_words_generate_a_tree(words: str, edges: set[tuple[str, str]]) -> None:
    overlay = generate(words)
    found = {
        (cell.name, neighbour)
        for cell in overlay.topology.cells
        for neighbour in cell.neighbours
        if cell.name < neighbour
    }
    assert found == edges
    assert overlay.brokers == [(f"b{each}", f"c{each}") for each in range(1, len(edges) + 2)]


@pytest.mark.parametrize(
    ("words", "same_as", "brokers"),
    [("line:3x2", "line:3", 2), ("star:4x3", "star:4", 3), ("tree:2x3x2", "tree:2x3", 2)],
)
def test_the_second_number_is_the_number_of_brokers_in_each_cell(
    words: str, same_as: str, brokers: int
) -> None:
    tree, single = generate(words).topology.cells, generate(same_as).topology.cells
    assert [(each.name, each.neighbours) for each in tree] == [
        (each.name, each.neighbours) for each in single
    ]
    for cell in tree:
        number = cell.name.removeprefix("c")
        assert cell.brokers == tuple(f"b{number}{letter}" for letter in "abc"[:brokers])


def test_one_broker_per_cell_is_the_default() -> None:
    assert generate("line:3x1") == generate("line:3")


def test_brokers_are_listed_in_numeric_order() -> None:
    names = [name for name, _ in generate("line:12").brokers]
    assert names[-3:] == ["b10", "b11", "b12"]
    names = [name for name, _ in generate("line:12x2").brokers]
    assert names[:3] == ["b1a", "b1b", "b2a"]
    assert names[-3:] == ["b11b", "b12a", "b12b"]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("line:2x0", "1 to 26 brokers in a cell"),
        ("line:2x27", "1 to 26 brokers in a cell"),
        ("line:501x2", "1 to 1,000 brokers"),
    ],
)
def test_the_number_of_brokers_in_a_cell_is_limited(words: str, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        generate(words)


def test_delta_can_be_overridden_for_words_and_files(tmp_path: Path) -> None:
    assert overlay_of("line:3x2").delta == 1
    assert overlay_of("line:3x2", delta=2).delta == 2
    path = str(written(tmp_path, OVERLAY, "overlay.toml"))
    assert overlay_of(path).delta == 0
    assert overlay_of(path, delta=3).delta == 3
    with pytest.raises(UsageError, match="delta is 17, and must be 0 to 16"):
        overlay_of("line:3", delta=17)


@pytest.mark.parametrize(
    "words",
    [
        *("", "line", "line:0", "line:x", "ring:3", "tree:2", "tree:0x2", "tree:2x0", "line:-1"),
        *("line:3x", "line:3x2x2", "tree:2x3x2x2", "star:٣"),
    ],
)
def test_invalid_topology_words_are_refused(words: str) -> None:
    with pytest.raises(UsageError):
        generate(words)


@pytest.mark.parametrize("words", ["line:1001", "star:999999", "tree:10x999999", "tree:999999x2"])
def test_an_overlay_above_the_limit_of_cells_is_refused(words: str) -> None:
    with pytest.raises(UsageError, match="1 to 1,000 cells"):
        generate(words)


@pytest.mark.parametrize("words", ["line:3", "star:11", "tree:2x3", "line:3x2"])
def test_a_written_overlay_is_read_back_equal(words: str, tmp_path: Path) -> None:
    overlay = overlay_of(words, delta=2)
    overlay.addresses[overlay.brokers[0][0]] = Address("::1", 7_400)
    assert load_overlay(written(tmp_path, overlay.to_toml(), "o.toml")) == overlay
