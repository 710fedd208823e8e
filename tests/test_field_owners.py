"""Every object writes its own fields: no component assigns to an attribute of another object.

A component owns its state. What others want changed there they ask for by a method, so that whoever reads
the class sees everything that can happen to its fields.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import gapless

ROOT = Path(gapless.__file__).parent

PACKAGES = ("subscribers", "mobility")
"""The packages for which it holds so far."""


def modules(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def targets(node: ast.AST) -> list[ast.expr]:
    """Return what a statement assigns to or deletes."""
    match node:
        case ast.Assign(targets=found) | ast.Delete(targets=found):
            return [part for each in found for part in _parts(each)]
        case ast.AugAssign(target=target) | ast.AnnAssign(target=target):
            return [target]
        case ast.For(target=target) | ast.NamedExpr(target=target):
            return _parts(target)
        case _:
            return []


def _parts(target: ast.expr) -> list[ast.expr]:
    if isinstance(target, ast.Tuple | ast.List):
        return [part for each in target.elts for part in _parts(each)]
    return [target]


def is_foreign(target: ast.expr) -> bool:
    """Say whether a target is an attribute of another object, or an entry of such an attribute."""
    while isinstance(target, ast.Subscript):
        target = target.value
    if not isinstance(target, ast.Attribute):
        return False
    owner = target.value
    return not (isinstance(owner, ast.Name) and owner.id in {"self", "cls"})


def foreign_writes(source: str) -> Iterator[tuple[int, str]]:
    """Return the lines that write a field of another object, and what they write."""
    for node in ast.walk(ast.parse(source)):
        for target in targets(node):
            if is_foreign(target):
                yield target.lineno, ast.unparse(target)


@pytest.mark.parametrize("package", PACKAGES)
def test_no_object_writes_the_fields_of_another(package: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {target}"
        for path in modules(package)
        for line, target in foreign_writes(path.read_text())
    ]
    assert found == []


@pytest.mark.parametrize(
    ("statement", "is_found"),
    [
        ("self.a = 1", False),
        ("a, self.b = 1, 2", False),
        ("self.a[0] = 1", False),
        ("entries[0] = 1", False),
        ("other.a = 1", True),
        ("other.a += 1", True),
        ("other.a: int = 1", True),
        ("a, other.b = 1, 2", True),
        ("self.part.a = 1", True),
        ("other.entries[0] = 1", True),
        ("del other.entries[0]", True),
        ("for other.a in range(3): pass", True),
    ],
)
def test_a_write_to_another_object_is_found(statement: str, *, is_found: bool) -> None:
    assert bool([*foreign_writes(statement)]) is is_found
