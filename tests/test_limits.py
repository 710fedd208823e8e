"""Limits are in few files: a limit elsewhere is found unless a table gives a reason.

The tables come first; they are the rule. The checker below them reads the assignments of every module
and class with ``ast`` and is itself tested on small planted limits.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from gapless.core import limits, plan_limits, request_limits

SOURCES = Path(__file__).resolve().parent.parent / "src" / "gapless"

# ---------------------------------------------------------------------------------------------
# The tables.

FIXED_LIMITS = (
    "core/limits.py",
    "core/overlay_limits.py",
    "core/plan_limits.py",
    "core/request_limits.py",
    "core/reshape_limits.py",
)
"""The files with fixed limits."""

LIMIT_FILES = (*FIXED_LIMITS, "core/parameters.py")
"""The files with fixed limits and with those that an operator may set."""

ENDINGS = ("_MAX", "_KEPT")
"""The endings of names of limits."""

PACKAGES_APART: dict[str, str] = {
    # Packages with limits of their own, with the reason.
    "spark": "an extra that nothing imports; how its jobs cut their work is tuned beside the job",
}

ALLOWED: dict[tuple[str, str], str] = {
    # (file, name): why it is no limit of ours.
    ("core/address.py", "_PORT_MAX"): "the highest port there is",
    ("content/lexer.py", "_KEYWORD_LENGTH_MAX"): "follows from the keywords",
    ("content/matching/fallback_groups.py", "_BOUNDS_MAX"): "follows from the rows of a mask",
    ("content/spans.py", "NUMBER_MAX"): "the end of the scale of numbers",
    ("content/spans.py", "TEXT_MAX"): "the end of the scale of texts",
    ("packed/scan/column_filter.py", "_EXACT_MAX"): "how far floats are exact",
    ("packed/scan/column_filter.py", "_WORD_MAX"): "the highest number of a word",
    ("runtime/overlay_socket.py", "_PATH_MAX"): "below what the system allows",
    ("runtime/overlay_config.py", "BROKERS_MAX"): "how many letters there are to name them",
}

# ---------------------------------------------------------------------------------------------
# The checker.


def stray_limits(path: str, source: str) -> list[str]:
    """Return the limits in a file; ``path`` is relative to the package, with slashes."""
    if path in LIMIT_FILES or path.split("/", 1)[0] in PACKAGES_APART:
        return []
    return [
        name
        for name, value in constants(ast.parse(source))
        if name.endswith(ENDINGS) and not is_another_name(value)
    ]


def constants(tree: ast.Module) -> Iterator[tuple[str, ast.expr | None]]:
    """Yield every constant of a module or a class, with its value."""
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
    """Return whether a constant is only another name of a limit."""
    return isinstance(value, ast.Name) and value.id.isupper()


# ---------------------------------------------------------------------------------------------
# The sources comply.


def found_limits() -> set[tuple[str, str]]:
    paths = [(path, path.relative_to(SOURCES).as_posix()) for path in SOURCES.rglob("*.py")]
    return {(name, stray) for path, name in paths for stray in stray_limits(name, path.read_text())}


def test_limits_are_in_the_files_for_limits() -> None:
    unexplained = found_limits() - ALLOWED.keys()
    assert not unexplained, f"move to core/limits.py, or say why not in ALLOWED: {unexplained}"


def test_every_allowance_is_needed() -> None:
    assert ALLOWED.keys() <= found_limits(), "remove unused entries from ALLOWED"
    assert all((SOURCES / each).is_dir() for each in PACKAGES_APART)


@pytest.mark.parametrize("file", FIXED_LIMITS)
def test_every_limit_has_a_reason(file: str) -> None:
    body = ast.parse((SOURCES / file).read_text()).body
    named = [index for index, node in enumerate(body) if isinstance(node, ast.AnnAssign)]
    for index in named:
        text = body[index + 1] if index + 1 < len(body) else None
        has_reason = isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
        assert has_reason, f"{ast.unparse(body[index])} has no docstring"


def test_every_limit_is_used() -> None:
    names = {
        name
        for module in (limits, plan_limits, request_limits)
        for name in vars(module)
        if name.isupper()
    }
    text = "\n".join(
        path.read_text()
        for folder in (SOURCES, Path(__file__).parent)
        for path in folder.rglob("*.py")
        if path not in {SOURCES / file for file in FIXED_LIMITS}
    )
    unused = {name for name in names if name not in text}
    assert not unused


# ---------------------------------------------------------------------------------------------
# The checker finds planted limits.


@pytest.mark.parametrize(
    "source",
    [
        "QUEUE_MAX = 5",
        "_QUEUE_MAX: Final = 5",
        "QUEUE_MAX: Final = OTHER_MAX * 2",
        "class Queue:\n    SLOTS_MAX: ClassVar = 5",
        "RESULTS_KEPT = 10",
    ],
)
def test_a_planted_limit_is_found(source: str) -> None:
    assert len(stray_limits("routing/queue.py", source)) == 1


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("core/limits.py", "QUEUE_MAX: Final = 5"),
        ("core/parameters.py", "QUEUE_MAX: Final = 5"),
        ("spark/batch.py", "QUEUE_MAX: Final = 5"),
        ("routing/queue.py", "SLOTS_MAX: Final = QUEUE_MAX"),
        ("routing/queue.py", "def f():\n    queue_max = 5"),
        ("routing/queue.py", "class Settings:\n    queue_max: int = 5"),
    ],
)
def test_a_number_that_is_no_limit_passes(path: str, source: str) -> None:
    assert stray_limits(path, source) == []
