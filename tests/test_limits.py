"""Limits stand in one file: what is named as one elsewhere is found, unless a table says why it may.

The tables come first; they are the rule. The checker below them reads the assignments of every module
and class with ``ast`` and is itself tested on small planted strays.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from gapless.core import limits

SOURCES = Path(__file__).resolve().parent.parent / "src" / "gapless"

# ---------------------------------------------------------------------------------------------
# The tables.

HOMES = ("core/limits.py", "core/parameters.py")
"""Where limits belong: those that nobody sets, and those that an operator may set."""

ENDINGS = ("_MAX", "_KEPT")
"""How a limit is named."""

ROOMS_APART: dict[str, str] = {
    # Packages whose numbers stay with them, with the reason.
    "spark": "an extra that nothing imports; how its jobs cut their work is tuned beside the job",
}

ALLOWED: dict[tuple[str, str], str] = {
    # (file, name): why it is no limit of ours.
    ("client/addresses.py", "_PORT_MAX"): "the highest port there is",
    ("content/lexer.py", "_KEYWORD_LENGTH_MAX"): "follows from the keywords",
    ("content/matching/fallback_groups.py", "_BOUNDS_MAX"): "follows from the rows of a mask",
    ("content/spans.py", "NUMBER_MAX"): "the end of the scale of numbers",
    ("content/spans.py", "TEXT_MAX"): "the end of the scale of texts",
    ("packed/scan/column_filter.py", "_EXACT_MAX"): "how far floats are exact",
    ("packed/scan/column_filter.py", "_WORD_MAX"): "the highest number of a word",
    ("runtime/overlay_config.py", "BROKERS_MAX"): "how many letters there are to name them",
}

# ---------------------------------------------------------------------------------------------
# The checker.


def strays(path: str, source: str) -> list[str]:
    """The limits that a file has of its own; ``path`` is relative to the package, with slashes."""
    if path in HOMES or path.split("/", 1)[0] in ROOMS_APART:
        return []
    return [
        name
        for name, value in constants(ast.parse(source))
        if name.endswith(ENDINGS) and not is_another_name(value)
    ]


def constants(tree: ast.Module) -> Iterator[tuple[str, ast.expr | None]]:
    """Every name in capitals that a module or a class is given, with its value."""
    for body in (
        tree.body,
        *(node.body for node in ast.walk(tree) if isinstance(node, ast.ClassDef)),
    ):
        for node in body:
            targets = node.targets if isinstance(node, ast.Assign) else []
            targets = [node.target] if isinstance(node, ast.AnnAssign) else targets
            for target in targets:
                if isinstance(target, ast.Name) and target.id.isupper():
                    assert isinstance(node, ast.Assign | ast.AnnAssign)
                    yield target.id, node.value


def is_another_name(value: ast.expr | None) -> bool:
    """Whether a constant only names another one, which is then the limit."""
    return isinstance(value, ast.Name) and value.id.isupper()


# ---------------------------------------------------------------------------------------------
# The sources obey.


def found_strays() -> set[tuple[str, str]]:
    paths = [(path, path.relative_to(SOURCES).as_posix()) for path in SOURCES.rglob("*.py")]
    return {(name, stray) for path, name in paths for stray in strays(name, path.read_text())}


def test_limits_are_in_one_file() -> None:
    unexplained = found_strays() - ALLOWED.keys()
    assert not unexplained, f"move to core/limits.py, or say why not in ALLOWED: {unexplained}"


def test_what_is_allowed_is_still_there() -> None:
    assert ALLOWED.keys() <= found_strays(), "remove from ALLOWED what is gone"
    assert all((SOURCES / room).is_dir() for room in ROOMS_APART)


def test_every_limit_has_a_reason() -> None:
    body = ast.parse((SOURCES / HOMES[0]).read_text()).body
    named = [place for place, node in enumerate(body) if isinstance(node, ast.AnnAssign)]
    for place in named:
        text = body[place + 1] if place + 1 < len(body) else None
        told = isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
        assert told, f"{ast.unparse(body[place])} has no sentence below it"


def test_no_limit_is_there_without_anybody_who_keeps_to_it() -> None:
    names = {name for name in vars(limits) if name.isupper()}
    text = "\n".join(
        path.read_text()
        for folder in (SOURCES, Path(__file__).parent)
        for path in folder.rglob("*.py")
        if path != SOURCES / HOMES[0]
    )
    unused = {name for name in names if name not in text}
    assert not unused


# ---------------------------------------------------------------------------------------------
# The alarm rings.


@pytest.mark.parametrize(
    "source",
    [
        "QUEUE_MAX = 5",
        "_QUEUE_MAX: Final = 5",
        "QUEUE_MAX: Final = OTHER_MAX * 2",
        "class Queue:\n    ROOMS_MAX: ClassVar = 5",
        "RESULTS_KEPT = 10",
    ],
)
def test_a_planted_limit_is_found(source: str) -> None:
    assert len(strays("routing/queue.py", source)) == 1


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("core/limits.py", "QUEUE_MAX: Final = 5"),
        ("core/parameters.py", "QUEUE_MAX: Final = 5"),
        ("spark/batch.py", "QUEUE_MAX: Final = 5"),
        ("routing/queue.py", "ROOMS_MAX: Final = QUEUE_MAX"),
        ("routing/queue.py", "def f():\n    queue_max = 5"),
        ("routing/queue.py", "class Settings:\n    queue_max: int = 5"),
    ],
)
def test_what_is_no_stray_passes(path: str, source: str) -> None:
    assert strays(path, source) == []
