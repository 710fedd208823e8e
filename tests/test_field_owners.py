"""Every object writes its own fields: no object assigns to an attribute of another object.

A component owns its state. Others call a method of the component to change it, so the class shows
every change of its fields. Neither do they change a list, a dict or a set in such a field. A function
may fill an object that it has just made: no other code can refer to that object yet.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import gapless

ROOT = Path(gapless.__file__).parent

PACKAGES = sorted(path.parent.name for path in ROOT.glob("*/__init__.py"))
PYTHON_OWN = {"__cause__", "environ", "propagate", "showwarning"}
"""Attributes of objects of the standard library that have no method to set them."""

CONTAINERS = {"Counter", "OrderedDict", "defaultdict", "deque", "dict", "list", "set"}
CHANGES = {
    *("add", "append", "appendleft", "clear", "discard", "extend", "insert", "pop", "popitem"),
    *("popleft", "remove", "reverse", "setdefault", "sort", "update"),
}
"""The methods that change a container."""


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


def is_foreign(target: ast.expr, own: set[str]) -> bool:
    """Return whether a target is an attribute of another object, or an entry of such an attribute."""
    while isinstance(target, ast.Subscript):
        target = target.value
    if not isinstance(target, ast.Attribute) or target.attr in PYTHON_OWN:
        return False
    owner = target.value
    return not (isinstance(owner, ast.Name) and owner.id in own)


def container_fields(tree: ast.AST) -> Iterator[str]:
    """Yield the names of the fields of classes that hold a container."""
    for node in ast.walk(tree):
        match node:
            case ast.AnnAssign(target=target, annotation=annotation):
                is_container = ast.unparse(annotation).partition("[")[0] in CONTAINERS
            case ast.Assign(targets=[target], value=value):
                is_container = _is_container(value)
            case _:
                continue
        if is_container and isinstance(target, ast.Attribute):
            yield target.attr
        elif is_container and isinstance(target, ast.Name) and isinstance(node, ast.AnnAssign):
            yield target.id


def _is_container(value: ast.expr) -> bool:
    if isinstance(value, ast.Call):
        return ast.unparse(value.func).partition("[")[0] in CONTAINERS
    comprehension = ast.ListComp | ast.DictComp | ast.SetComp
    return isinstance(value, ast.List | ast.Dict | ast.Set | comprehension)


@cache
def all_container_fields() -> frozenset[str]:
    trees = [ast.parse(path.read_text()) for path in ROOT.rglob("*.py")]
    return frozenset(name for tree in trees for name in container_fields(tree))


def changed_container(node: ast.AST, fields: frozenset[str]) -> ast.expr | None:
    """Return the container in a field that an expression changes by a method."""
    match node:
        case ast.Call(func=ast.Attribute(value=container, attr=method)) if method in CHANGES:
            held = container
            while isinstance(held, ast.Subscript):
                held = held.value
            is_field = isinstance(held, ast.Attribute) and held.attr in fields
            return container if is_field else None
        case _:
            return None


def made_in(function: ast.AST) -> set[str]:
    """Return the names of the objects that a function makes: ``name = Class(…)``."""
    return {
        target.id
        for node in ast.walk(function)
        if isinstance(node, ast.Assign) and _makes(node.value)
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def _makes(value: ast.expr) -> bool:
    if not isinstance(value, ast.Call):
        return False
    called = ast.unparse(value.func)
    return called in {"cls", "cls.__new__"} or called.rpartition(".")[2].lstrip("_")[:1].isupper()


def foreign_writes(
    tree: ast.AST,
    fields: frozenset[str] = frozenset(),
    own: frozenset[str] = frozenset({"self", "cls"}),
) -> Iterator[tuple[int, str]]:
    """Return the lines that write a field of another object, and the targets.

    ``fields`` are those that hold containers.
    """
    for node in ast.iter_child_nodes(tree):
        is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        inner = own | made_in(node) if is_function else own
        changed = changed_container(node, fields)
        for target in (*targets(node), *((changed,) if changed else ())):
            if is_foreign(target, {*inner}):
                yield target.lineno, ast.unparse(target)
        yield from foreign_writes(node, fields, frozenset(inner))


@pytest.mark.parametrize("package", PACKAGES)
def test_no_object_writes_the_fields_of_another(package: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {target}"
        for path in modules(package)
        for line, target in foreign_writes(ast.parse(path.read_text()), all_container_fields())
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
        ("self.entries.append(1)", False),
        ("self.entries[0].append(1)", False),
        ("other.entries.append(1)", True),
        ("other.entries[0].append(1)", True),
        ("x = self.part.entries.pop()", True),
        ("other.part.append(1)", False),
        ("def make():\n    made = Part()\n    made.a = 1", False),
        ("def make(part):\n    made = part.copy()\n    made.a = 1", True),
    ],
)
def test_a_write_to_another_object_is_found(statement: str, *, is_found: bool) -> None:
    assert bool([*foreign_writes(ast.parse(statement), frozenset({"entries"}))]) is is_found


@pytest.mark.parametrize(
    "statement",
    ["self.a: dict[str, int] = made()", "self.a = []", "self.a = deque[int]()", "a: list[str]"],
)
def test_a_field_that_holds_a_container_is_found(statement: str) -> None:
    assert [*container_fields(ast.parse(statement))] == ["a"]
