"""Sizes, docstrings and exported names, checked over the whole tree."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import gapless

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("src", "tests", "benchmarks", "examples")

FILE_LINES_MAX = 800
"""A longer file should be divided."""

FUNCTION_LINES_MAX = 70
"""Lines of a function without its docstring: about one screen."""

LONG_FUNCTIONS: dict[str, str] = {
    # "path::name" of a function above the limit, with the reason why it is not divided.
    "src/gapless/broker/assembly.py::assemble": "one list: each component with those it is given",
}

EXPORTED = [
    "Backoff",
    "Event",
    "F",
    "Filter",
    "FilterLimitError",
    "FilterSyntaxError",
    "GaplessError",
    "MatchIndex",
    "Position",
    "__version__",
    "connect",
    "connect_sync",
    "errors",
]
"""The public names of the package, sorted. A new one is a promise: add it here on purpose."""


def files(*suffixes: str) -> Iterator[Path]:
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in suffixes and "__pycache__" not in path.parts:
                yield path


def test_only_the_output_module_makes_texts_of_the_command_line() -> None:
    # it escapes the control characters of names
    makers = [
        path.name
        for path in sorted((ROOT / "src/gapless/cli").glob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in {"Text", "Text.assemble"}
    ]
    assert {*makers} == {"output.py"}


def functions(node: ast.AST, prefix: str = "") -> Iterator[tuple[str, int]]:
    """Qualified name and length of every function; a nested one counts for its parent too."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield prefix + child.name, length(child)
            yield from functions(child, f"{prefix}{child.name}.")
        elif isinstance(child, ast.ClassDef):
            yield from functions(child, f"{prefix}{child.name}.")
        else:
            yield from functions(child, prefix)


def length(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    assert function.end_lineno is not None
    lines = function.end_lineno - function.lineno + 1
    if ast.get_docstring(function) is None:
        return lines
    docstring = function.body[0]
    assert docstring.end_lineno is not None
    return lines - (docstring.end_lineno - docstring.lineno + 1)


def test_no_file_is_longer_than_the_limit() -> None:
    long_files = {
        path.relative_to(ROOT).as_posix(): lines
        for path in files(".py", ".pyx")
        if (lines := len(path.read_text().splitlines())) > FILE_LINES_MAX
    }
    assert not long_files, f"above {FILE_LINES_MAX} lines: {long_files}"


def test_no_function_is_longer_than_the_limit_without_a_reason() -> None:
    long_functions = {
        f"{path.relative_to(ROOT).as_posix()}::{name}": lines
        for path in files(".py")
        for name, lines in functions(ast.parse(path.read_text()))
        if lines > FUNCTION_LINES_MAX
    }
    unexplained = {
        name: lines for name, lines in long_functions.items() if name not in LONG_FUNCTIONS
    }
    assert not unexplained, f"above {FUNCTION_LINES_MAX} lines: {unexplained}"
    stale = LONG_FUNCTIONS.keys() - long_functions.keys()
    assert not stale, f"no longer long, remove from LONG_FUNCTIONS: {stale}"


def test_a_long_function_is_found() -> None:
    body = "\n".join("    x = 1" for _ in range(80))
    planted = ast.parse(f'class A:\n  def f(self):\n    """Two\n    lines."""\n{body}')
    assert dict(functions(planted)) == {"A.f": 81}


def test_every_package_has_a_docstring() -> None:
    silent = [
        path.relative_to(ROOT).as_posix()
        for path in files(".py")
        if path.name == "__init__.py" and "src" in path.parts
        if not ast.get_docstring(ast.parse(path.read_text()))
    ]
    assert not silent


def test_every_package_folder_has_an_init() -> None:
    folders = {path.parent for path in files(".py", ".pyx") if "src" in path.parts}
    missing = [folder for folder in sorted(folders) if not (folder / "__init__.py").exists()]
    assert not missing


def test_the_package_exports_exactly_what_it_promises() -> None:
    assert sorted(gapless.__all__) == EXPORTED
    assert len(set(EXPORTED)) == len(EXPORTED)
    for name in EXPORTED:
        assert hasattr(gapless, name)


def test_the_package_is_marked_as_typed() -> None:
    assert (ROOT / "src" / "gapless" / "py.typed").exists()
