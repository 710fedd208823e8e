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
from gapless.runtime.config import listen_address
from gapless.runtime.parameter_values import parameter_values, read_option

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
        ('name = "b1"\ndata = 5', "data is 5: it must be a text in quotes"),
        (
            'name = "b1"\ndata = "d"\n[log]\nlevel = "loud"',
            'log.level is "loud": it must be one of debug, error, info, warning',
        ),
        (
            'name = "b1"\ndata = "d"\n[log]\npath = "x"',
            "no key `log.path`; valid keys: level, format, file, bytes_max",
        ),
        ('name = "b1"\ndata = "d"\n[log]\nformat = "xml"', "one of text, json"),
        (
            'name = "b1"\ndata = "d"\n[log]\nbytes_max = 9',
            "is 9: it must be a whole number from 4,096",
        ),
        ('name = "b1"\ndata = "d"\nlog = "x"', 'log is "x": it must be a table'),
        ('name = "b1"\ndata = "d"\nlisten = "nowhere:port"', "host:port"),
        ('name = "b1"\ndata = "d"\nlisten = "x:99999"', "host:port"),
        (
            'name = "b1"\ndata = "d"\n[parameters]\nheartbeat = 1',
            "no parameter heartbeat; did you mean heartbeat_ms",
        ),
        (
            'name = "b1"\ndata = "d"\n[parameters]\nretention_s = -5',
            "parameters.retention_s is -5: it must be a whole number from 0 to",
        ),
        (
            'name = "b1"\ndata = "d"\n[parameters]\nack_ms = 0',
            "parameters.ack_ms is 0: it must be a whole number from 1 to",
        ),
        (
            'name = "b1"\ndata = "d"\n[parameters]\nretention_s = "2 moons"',
            'parameters.retention_s is "2 moons": it must be a whole number from 0 to 10,000,000,000, or with a unit: 90s, 15min, 2h, 7d',
        ),
        (
            'name = "b1"\ndata = "d"\n[parameters]\nretention_s = 1.5',
            "parameters.retention_s is 1.5: it must be a whole number",
        ),
        ('name = "b1"\ndata = "d"\n[parameters]\nheartbeat_ms = true', "a whole number"),
        ('name = "b1"\ndata = "d"\n[parameters]\nordered_sessions = 1', "true or false"),
        ('name = "b1"\ndata = "d"\n[parameters]\nheartbeat_ms = 9999', "session_timeout_ms"),
        ('name = "b1"\ndata = "d"\n[parameters]\nframe_bytes_max = 99999999', "8,388,608"),
        ('name = "b9"\ndata = "d"\noverlay = "overlay.toml"', "no broker b9"),
        ('name = "p1"\ndata = "d"\ncell = "rome"\noverlay = "overlay.toml"', "'paris'"),
        ('name = "p1"\ndata = "d"\noverlay = "overlay.toml"\n[parameters]\ndelta = 2', "delta"),
        ('name = "b@1"\ndata = "d"', "no name"),
        ("name = ", "is not TOML"),
        ('name = "b1"\ndata = "a\\u0000b"', "data is"),
        ('name = "b1"\ndata = "d"\noverlay = "a\\u0000b"', "overlay is"),
        ('name = "b1"\ndata = "d"\n[log]\nfile = "a\\u0000b"', "log.file is"),
        ('name = "b1"\ndata = "d"\n[audit]\ndirectory = "a\\u0000b"', "audit.directory is"),
        ('name = "b1"\ndata = "d"\n[audit]\ndirectory = "a"\nbytes_max = 1', "at least 4 times"),
        ('name = "b1"\ndata = "d"\n[access]\ntokens = "a\\u0000b"', "access.tokens is"),
        ('name = "b1"\ndata = "d"\nlisten = "a\\u0000b:1"', "host:port"),
        (f'name = "b1"\ndata = "d"\nlisten = "a:{"9" * 5_000}"', "host:port"),
        (f'name = "b1"\ndata = {"9" * 5_000}', "a number with too many digits"),
        (f'name = "b1"\ndata = 0x{"f" * 6_000}', "data is about 2**23999: it must be a text"),
        (
            f'name = "b1"\ndata = "d"\n[parameters]\nretention_s = "{"9" * 400}h"',
            "it must be a whole number from 0",
        ),
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


# --- parameters -----------------------------------------------------------------------------------


def test_parameters_of_the_overlay_apply_to_every_broker_unless_its_file_has_others(
    tmp_path: Path,
) -> None:
    text = OVERLAY + '\n[parameters]\nretention_s = "2h"\nlog_bytes_max = "10GB"\n'
    written(tmp_path, text, "overlay.toml")
    plain = 'name = "p1"\ndata = "d"\noverlay = "overlay.toml"\n'
    parameters = load_config(written(tmp_path, plain)).settings.parameters
    assert (parameters.retention_s, parameters.log_bytes_max) == (7_200, 10_000_000_000)
    own = plain + "[parameters]\nretention_s = 60\n"
    parameters = load_config(written(tmp_path, own)).settings.parameters
    assert (parameters.retention_s, parameters.log_bytes_max) == (60, 10_000_000_000)
    overlay = load_overlay(tmp_path / "overlay.toml")
    written(tmp_path, overlay.to_toml(), "again.toml")
    assert load_overlay(tmp_path / "again.toml") == overlay


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("90s", 90),
        ("15min", 900),
        ("1.5h", 5_400),
        ("7d", 604_800),
        ("2w", 1_209_600),
        ("2000ms", 2),
        ("60", 60),
    ],
)
def test_a_time_may_have_a_unit(text: str, value: int) -> None:
    assert parameter_values({"retention_s": text}) == {"retention_s": value}
    assert read_option(f"retention_s={text}") == ("retention_s", value)
    assert parameter_values({"heartbeat_ms": text}) == {
        "heartbeat_ms": value * 1_000 if text != "60" else 60
    }


@pytest.mark.parametrize("key", ["listen", "advertise", "metrics"])
def test_an_invalid_address_names_its_file_and_key(key: str, tmp_path: Path) -> None:
    path = written(tmp_path, f'name = "b1"\ndata = "d"\n{key} = "127.0.0.1:99999"\n')
    problem = f"{path}: {key}: '127.0.0.1:99999' is not an address: write host:port"
    with pytest.raises(UsageError, match=re.escape(problem)):
        load_config(path)
    if key != "metrics":
        with pytest.raises(UsageError, match=re.escape(problem)):
            listen_address(path)


def test_an_invalid_address_of_an_overlay_names_its_file_and_broker(tmp_path: Path) -> None:
    path = written(tmp_path, OVERLAY + 'l2 = "x:y"\n', "overlay.toml")
    with pytest.raises(UsageError, match=re.escape(f"{path}: addresses.l2: 'x:y' is not")):
        load_overlay(path)


@pytest.mark.parametrize(
    ("option", "problem"),
    [
        ("retention_s", "'retention_s' is no parameter: write NAME=VALUE"),
        ("retension_s=1", "there is no parameter retension_s; did you mean retention_s"),
        ("retention_s=10ms", 'parameters.retention_s is "10ms": it must be a whole number from 0'),
        ("retention_s=1GB", "or with a unit: 90s, 15min, 2h, 7d"),
        ("log_bytes_max=2h", "or with a unit: 64MiB, 10GB"),
        ("retention_s=99999999999999999999", "from 0 to 10,000,000,000"),
        ("ordered_sessions=yes", 'parameters.ordered_sessions is "yes": it must be true or false'),
        ("delta=17", 'parameters.delta is "17": it must be a whole number from 0 to 16'),
    ],
)
def test_an_invalid_option_names_the_value_and_the_allowed_values(
    option: str, problem: str
) -> None:
    with pytest.raises(UsageError, match=re.escape(problem)):
        read_option(option)
