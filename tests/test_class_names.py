"""A public class name occurs once in the product."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

SOURCES = Path(__file__).resolve().parent.parent / "src" / "gapless"


def public_classes(source: str) -> list[str]:
    """Return the names of the public classes of a module that are in no class or function."""
    return [node.name for node in _top_level(ast.parse(source)) if not node.name.startswith("_")]


def _top_level(tree: ast.AST) -> Iterator[ast.ClassDef]:
    """Yield the classes of a module, also those below an ``if`` or a ``try``."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef):
            yield node
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _top_level(node)


def duplicates(sources: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Return the class names that several modules define, with the paths of these modules."""
    found: dict[str, list[str]] = defaultdict(list)
    for path, source in sources:
        for name in public_classes(source):
            found[name].append(path)
    return {name: paths for name, paths in found.items() if len(paths) > 1}


def test_no_public_class_name_occurs_twice() -> None:
    sources = [
        (path.relative_to(SOURCES).as_posix(), path.read_text())
        for path in sorted(SOURCES.rglob("*.py"))
    ]
    assert sources
    assert duplicates(sources) == {}


def test_a_planted_duplicate_is_found() -> None:
    planted = [("a.py", "class Cursor: ..."), ("b.py", "class Cursor: ...")]
    planted.append(("c.py", "class Other: ..."))
    assert duplicates(planted) == {"Cursor": ["a.py", "b.py"]}


def test_a_class_that_is_defined_under_a_condition_is_found() -> None:
    planted = [("a.py", "if True:\n    class Cursor: ..."), ("b.py", "class Cursor: ...")]
    assert duplicates(planted) == {"Cursor": ["a.py", "b.py"]}


def test_private_and_nested_classes_may_share_a_name() -> None:
    nested = "class {0}:\n    class Inner: ..."
    planted = [("a.py", "class _Row: ..."), ("b.py", "class _Row: ...")]
    planted += [("c.py", nested.format("First")), ("d.py", nested.format("Second"))]
    assert duplicates(planted) == {}
