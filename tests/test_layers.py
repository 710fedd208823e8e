"""The layer order and the banned imports, checked over the sources.

The tables come first; they are the rule. The checker below them reads the imports of every module
with ``ast`` and is itself tested on small planted violations.
"""

from __future__ import annotations

import ast
import dataclasses
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCES = Path(__file__).resolve().parent.parent / "src" / "gapless"

# ---------------------------------------------------------------------------------------------
# The tables.

LAYERS: tuple[tuple[str, ...], ...] = (
    # From the bottom up. A package may import itself and every package of a lower row.
    ("core",),
    ("content",),
    ("messages",),
    ("packed",),
    ("stream",),
    ("overlay",),
    ("access",),
    ("directory",),
    ("propagation",),
    ("feeds",),
    ("routing",),
    ("requests",),
    ("pubend",),
    ("subscribers",),
    ("retirement",),
    ("mobility",),
    ("reshape",),
    ("inspection",),
    ("broker",),
    ("audit",),
    ("wire", "storage", "runtime"),
    ("client", "gateway"),
    ("console", "cli", "spark", "testing"),
)

SIBLINGS: dict[tuple[str, str], str] = {
    # (importer, imported) inside one row, with the reason.
    ("runtime", "wire"): "the driver moves bytes, so it needs the codec",
    ("runtime", "storage"): "the driver writes what the machine asks to be written",
    ("cli", "spark"): "the command line is a face of the Spark jobs as of everything else",
}

EXCEPTIONS: dict[tuple[str, str], str] = {
    # (file, imported name) against the order, with the reason; to be removed.
}

DETERMINISTIC = (
    # The machine without IO: the same inputs give the same outputs, byte for byte.
    "core",
    "content",
    "messages",
    "packed",
    "stream",
    "overlay",
    "access",
    "directory",
    "propagation",
    "feeds",
    "routing",
    "requests",
    "pubend",
    "subscribers",
    "retirement",
    "mobility",
    "reshape",
    "inspection",
    "broker",
)

BANNED_MODULES: dict[str, str] = {
    # In deterministic packages, with the reason.
    "time": "time is an argument",
    "sched": "time is an argument",
    "random": "randomness is an argument, a seeded generator passed in",
    "secrets": "randomness is an argument, a seeded generator passed in",
    "uuid": "ids are made from what the machine was given",
    "asyncio": "the drivers own the event loop",
    "concurrent": "the machine has one thread",
    "multiprocessing": "the machine has one process",
    "threading": "the machine has one thread",
    "queue": "the machine has one thread; a queue is a collections.deque with a limit",
    "signal": "signals belong to the drivers",
    "subprocess": "the machine starts no program",
    "socket": "no IO in the machine",
    "select": "no IO in the machine",
    "selectors": "no IO in the machine",
    "ssl": "no IO in the machine",
    "http": "no IO in the machine",
    "urllib": "no IO in the machine",
    "sqlite3": "no IO in the machine; storage is an effect",
    "os": "no IO in the machine, and no environment",
    "pathlib": "no IO in the machine",
    "io": "no IO in the machine",
    "tempfile": "no IO in the machine",
    "shutil": "no IO in the machine",
    "logging": "what happened is an effect or a trace, not a log line",
}

BANNED_CALLS: dict[str, str] = {
    # Dotted names in deterministic packages, as they are after undoing aliases.
    "datetime.datetime.now": "time is an argument",
    "datetime.datetime.utcnow": "time is an argument",
    "datetime.datetime.today": "time is an argument",
    "datetime.date.today": "time is an argument",
    "numpy.random": "randomness is an argument, a seeded generator passed in",
    "open": "no IO in the machine",
    "print": "no IO in the machine",
    "input": "no IO in the machine",
    "breakpoint": "no IO in the machine",
    "__import__": "imports are visible at the top of the file",
}

THIRD_PARTY: dict[str, tuple[str, ...]] = {
    # What a deterministic package may import that is neither ours nor Python's.
    # msgspec provides small frozen structs; numpy is used by the matching index, the column scan and
    # the commit of staged batches.
    "core": ("msgspec",),
    "content": ("msgspec", "numpy"),
    "messages": ("msgspec",),
    "inspection": ("msgspec",),
    "overlay": ("msgspec",),
    "propagation": ("msgspec",),
    "packed": ("msgspec", "numpy"),
    "directory": ("msgspec",),
    "stream": ("msgspec",),
    "reshape": ("msgspec",),
    "feeds": ("msgspec",),
    "routing": ("msgspec",),
    "requests": ("msgspec",),
    "pubend": ("msgspec", "numpy"),
    "subscribers": ("msgspec",),
    "mobility": ("msgspec",),
}


@dataclasses.dataclass(frozen=True)
class Allowance:
    """A file that may use some names of a banned module."""

    names: tuple[str, ...]
    reason: str


ALLOWANCES: dict[tuple[str, str], Allowance] = {
    # (file, module): what it may use of it.
    ("content/matching/kernel.py", "os"): Allowance(
        ("environ",),
        "chooses the compiled kernel or its fallback once, at import, before any machine exists",
    ),
}

API_USERS = LAYERS[-1]
"""Packages that may import names from ``gapless`` itself; in lower ones that would be a cycle."""

# ---------------------------------------------------------------------------------------------
# The checker.

RANKS = {package: rank for rank, row in enumerate(LAYERS) for package in row}


@dataclasses.dataclass(frozen=True)
class Use:
    """A dotted name that a module imports or reads, with its line."""

    name: str
    line: int


def violations(path: str, source: str) -> list[str]:
    """Return the violations of a file; ``path`` is relative to the package, with slashes."""
    package = path.split("/", 1)[0] if "/" in path else ""
    if package and package not in RANKS:
        return [f"{path}: package {package!r} is in no layer; add it to LAYERS in {__name__}"]
    tree = ast.parse(source)
    imports = list(imported_names(tree, path))
    found: list[tuple[int, str]] = []
    found += [
        (use.line, problem)
        for use in imports
        if (path, use.name) not in EXCEPTIONS and (problem := layer_problem(package, use))
    ]
    if package in DETERMINISTIC:
        uses = imports + list(read_names(tree, aliases(tree, path)))
        found += [(use.line, problem) for use in uses if (problem := io_problem(path, use))]
    return [f"{path}:{line}: {problem}" for line, problem in sorted(set(found))]


def layer_problem(package: str, use: Use) -> str | None:
    """Return why this package may not import this module of ours, or None."""
    root, _, rest = use.name.partition(".")
    if root == "gapless_lab":
        return f"{package or 'gapless'} imports {use.name}; the product never imports the lab"
    if root != "gapless" or not package:
        return None  # the modules beside the packages are the public API and may import all of them
    target = rest.split(".", 1)[0]
    if target not in RANKS:
        if package in API_USERS:
            return None
        return f"{package} imports {use.name}, which is in no layer"
    if target == package or RANKS[target] < RANKS[package] or (package, target) in SIBLINGS:
        return None
    return f"{package} imports {target}, which is not below it"


def io_problem(path: str, use: Use) -> str | None:
    """Return why a deterministic package may not use this name, or None."""
    root, _, rest = use.name.partition(".")
    if root in BANNED_MODULES:
        allowance = ALLOWANCES.get((path, root))
        if allowance and (not rest or rest.split(".", 1)[0] in allowance.names):
            return None
        return f"uses {use.name}: {BANNED_MODULES[root]}"
    for banned, reason in BANNED_CALLS.items():
        if use.name == banned or use.name.startswith(banned + "."):
            return f"uses {use.name}: {reason}"
    return None


def third_party_problems(path: str, source: str) -> list[str]:
    """Return the imports of third-party packages that the table does not list."""
    package = path.split("/", 1)[0]
    if package not in DETERMINISTIC:
        return []
    allowed = {"gapless", *THIRD_PARTY.get(package, ()), *sys.stdlib_module_names}
    return [
        f"{path}:{use.line}: imports {use.name}, which {package} may not depend on"
        for use in imported_names(ast.parse(source), path)
        if use.name.split(".", 1)[0] not in allowed
    ]


def imported_names(tree: ast.AST, path: str) -> Iterator[Use]:
    """Yield every imported name of the file, dotted and absolute."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Use(alias.name, node.lineno)
        elif isinstance(node, ast.ImportFrom):
            module = absolute(node, path)
            for alias in node.names:
                yield Use(f"{module}.{alias.name}", node.lineno)


def aliases(tree: ast.AST, path: str) -> dict[str, str]:
    """Return the full name of each local name that an import bound."""
    bound: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                root = alias.name.split(".", 1)[0]
                bound[alias.asname or root] = alias.name if alias.asname else root
        elif isinstance(node, ast.ImportFrom):
            module = absolute(node, path)
            for alias in node.names:
                bound[alias.asname or alias.name] = f"{module}.{alias.name}"
    return bound


def read_names(tree: ast.AST, bound: dict[str, str]) -> Iterator[Use]:
    """Yield every dotted name that the code reads, with aliases resolved, and the called builtins."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            dotted = dotted_name(node)
            if dotted is None:
                continue
            root, _, rest = dotted.partition(".")
            if root in bound:
                yield Use(f"{bound[root]}.{rest}", node.lineno)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield Use(bound.get(node.func.id, node.func.id), node.lineno)


def dotted_name(node: ast.expr) -> str | None:
    """Return ``a.b.c`` as text, or None for an attribute of something that is not a name."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        prefix = dotted_name(node.value)
        return None if prefix is None else f"{prefix}.{node.attr}"
    return None


def absolute(node: ast.ImportFrom, path: str) -> str:
    """Return the module of a ``from`` import, with leading dots resolved against the file."""
    if not node.level:
        return node.module or ""
    here = ["gapless", *path.split("/")[:-1]]
    base = here[: len(here) - (node.level - 1)]
    return ".".join([*base, node.module] if node.module else base)


# ---------------------------------------------------------------------------------------------
# The sources comply.


def source_files() -> list[Path]:
    return sorted(SOURCES.rglob("*.py"))


def test_there_are_sources_to_check() -> None:
    assert any(path.name == "__init__.py" for path in source_files())


def test_every_package_is_in_a_layer() -> None:
    packages = {path.relative_to(SOURCES).parts[0] for path in SOURCES.glob("*/*.py")}
    unknown = packages - RANKS.keys()
    assert not unknown, f"add to LAYERS in {__file__}: {sorted(unknown)}"


def test_sources_keep_to_the_layers_and_do_no_io() -> None:
    problems = [
        problem
        for path in source_files()
        for problem in violations(path.relative_to(SOURCES).as_posix(), path.read_text())
    ]
    assert not problems, "\n".join(problems)


def test_deterministic_packages_depend_only_on_listed_third_parties() -> None:
    problems = [
        problem
        for path in source_files()
        for problem in third_party_problems(path.relative_to(SOURCES).as_posix(), path.read_text())
    ]
    assert not problems, "\n".join(problems)


def test_the_product_does_not_name_the_lab() -> None:
    # a module could be imported by its name; commands of the lab are found by entry points
    named = [path for path in source_files() if "gapless_lab" in path.read_text()]
    assert not named


def test_an_exception_that_is_not_needed_is_removed() -> None:
    for path, name in EXCEPTIONS:
        imports = imported_names(ast.parse((SOURCES / path).read_text()), path)
        assert name in {use.name for use in imports}, f"{path}: remove it from EXCEPTIONS"


def test_the_tables_are_consistent() -> None:
    packages = [package for row in LAYERS for package in row]
    assert len(packages) == len(set(packages)), "a package stands in two rows"
    assert set(DETERMINISTIC) <= set(packages)
    assert set(THIRD_PARTY) <= set(DETERMINISTIC)
    for importer, imported in SIBLINGS:
        assert RANKS[importer] == RANKS[imported], f"{importer}, {imported}: not in one row"
        assert (imported, importer) not in SIBLINGS, f"{importer}, {imported}: a circle"
    for _, module in ALLOWANCES:
        assert module in BANNED_MODULES


# ---------------------------------------------------------------------------------------------
# The checker finds planted violations.


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("core/ticks.py", "from gapless.content import Filter"),
        ("core/ticks.py", "from gapless import content"),
        ("cli/main.py", "from gapless_lab.sim import world"),
        ("spark/batch.py", "def f():\n    import gapless_lab"),
        ("__init__.py", "from gapless_lab.sim import world"),
        ("core/ticks.py", "import gapless.broker.entry"),
        ("core/ticks.py", "from ..content import values"),
        ("content/matching/index.py", "from ...messages import frames"),
        ("content/values.py", "def f():\n    from gapless.pubend import pubend"),
        ("content/values.py", "from gapless import Filter"),
        ("storage/log.py", "from gapless.runtime import loop"),
        ("wire/codec.py", "from gapless.client import session"),
        ("telepathy/mind.py", "import gapless.core"),
    ],
)
def test_a_planted_violation_of_the_layers_is_found(path: str, source: str) -> None:
    assert len(violations(path, source)) == 1


@pytest.mark.parametrize(
    "source",
    [
        *(f"import {module}" for module in BANNED_MODULES),
        "from time import monotonic",
        "import os.path",
        "import random as dice",
        "def f():\n    import socket",
        "import datetime\nnow = datetime.datetime.now()",
        "from datetime import datetime as clock\nnow = clock.now()",
        "from datetime import datetime\nread = datetime.utcnow",
        "import datetime as d\nday = d.date.today()",
        "import numpy as np\nx = np.random.rand()",
        "from numpy.random import default_rng",
        "f = open('x')",
        "print('x')",
        "__import__('socket')",
    ],
)
def test_planted_io_is_found_in_a_deterministic_package(source: str) -> None:
    assert violations("broker/entry.py", source)


def test_io_is_allowed_in_other_packages() -> None:
    assert not violations("runtime/loop.py", "import asyncio, os, socket, time\nprint(time.time())")


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("content/filter.py", "from gapless.core.errors import FilterSyntaxError"),
        ("content/matching/index.py", "from ..values import Value\nfrom .kernel import KERNEL"),
        ("runtime/loop.py", "from gapless.wire import codec\nfrom gapless.storage import log"),
        ("cli/main.py", "from gapless import Filter, __version__\nimport gapless.content"),
        ("__init__.py", "from gapless.content import Filter"),
        ("content/values.py", "import datetime\nspan = datetime.timedelta(1)"),
        ("content/values.py", "import numpy\nx = numpy.zeros(3)\nreopen('x')"),
        ("content/values.py", "class A:\n    def f(self):\n        self.open()"),
    ],
)
def test_allowed_imports_pass(path: str, source: str) -> None:
    assert violations(path, source) == []


def test_an_allowance_covers_one_file_and_the_names_it_lists() -> None:
    kernel = "content/matching/kernel.py"
    reads_environment = "import os\nchosen = os.environ.get('GAPLESS_KERNEL')"
    assert violations(kernel, reads_environment) == []
    assert violations(kernel, "from os import environ\nchosen = environ['GAPLESS_KERNEL']") == []
    assert violations(kernel, "import os\nos.remove('x')")
    assert violations(kernel, "from os import remove")
    assert violations("content/matching/index.py", reads_environment)


def test_a_planted_dependency_is_found() -> None:
    assert third_party_problems("core/ticks.py", "import numpy")
    assert third_party_problems("content/values.py", "from duckdb import connect")
    assert not third_party_problems("content/values.py", "import numpy as np\nimport bisect")
    assert not third_party_problems("cli/main.py", "import typer")
