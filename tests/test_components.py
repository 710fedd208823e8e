"""The components do not depend on the broker that contains them, nor on each other's classes.

A component calls another one through a Protocol that its constructor receives. It notifies the
components above it through the notifications alone. Values may be of any class.
"""

from __future__ import annotations

import ast
import gc
import importlib
from collections import deque
from collections.abc import Iterable, Iterator
from enum import Enum
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any, Final

import msgspec
import pytest

from gapless.broker import Broker
from gapless.broker.assembly import Components
from gapless.broker.dispatch import Dispatch
from gapless.broker.notifications import Notifications
from gapless.overlay.tree import Tree
from tests.broker.harness import BrokerHarness
from tests.test_layers import (
    DETERMINISTIC,
    EXCEPTIONS,
    SOURCES,
    aliases,
    imported_names,
    source_files,
)

USERS_OF_THE_BROKER: Final = ("broker", "runtime", "testing", "cli")
"""The packages that may import the broker: they drive it."""

PASSIVE: Final = ("core", "content", "messages", "packed", "stream")
"""The packages without components."""

COMPONENTS: Final = tuple(each for each in DETERMINISTIC if each not in PASSIVE)

READS_CLASSES: Final = ("inspection", "broker")
"""Inspection shows the state of all components, and the broker creates them."""

READ_BY_ALL: Final = (Tree,)
"""The current neighbourhood, which all components read and which calls nobody."""


def running_broker() -> Broker:
    """Return a broker that feeds a peer, is fed by one, and has pubends and subscriptions."""
    world = BrokerHarness("p-n")
    for name in ("p", "n"):
        world.publisher(name, name.upper()).send_event("e1", kind="X")
        world.subscriber(name, f"d{name}", "kind = 'X'", durable=True)
        world.subscriber(name, f"s{name}", "kind = 'X'")
    world.run(s=3)
    broker = world["n"]
    components = broker.components
    assert len(components.registry.subscriptions) == 2
    assert len(components.subends.guaranteed) == 2
    assert components.hosted
    broker.observers.clear()  # those of the harness refer to all its brokers
    return broker


def imports_of_the_broker() -> Iterable[tuple[str, str]]:
    """Yield the modules outside of the users of the broker that import its package, each with the name."""
    for path in source_files():
        name = path.relative_to(SOURCES).as_posix()
        if name.split("/")[0] not in USERS_OF_THE_BROKER:
            for use in imported_names(ast.parse(path.read_text()), name):
                if f"{use.name}.".startswith("gapless.broker."):
                    yield name, use.name


def referred(value: object) -> list[Any]:
    """Return what an object holds: its attributes, items, or the variables of a closure."""
    if isinstance(value, ModuleType | type | BuiltinFunctionType):
        return []
    if isinstance(value, FunctionType):
        return [*(value.__closure__ or ()), *(value.__defaults__ or ())]
    return gc.get_referents(value)


def path_to(
    kinds: tuple[type, ...], start: object, beside: tuple[type, ...] = ()
) -> list[str] | None:
    """Return the types on a path of references from an object to one of these kinds, if there is one.

    Paths through objects of the types ``beside`` do not count.
    """
    queue: deque[tuple[object, list[str]]] = deque([(start, [])])
    seen = {id(start)}
    while queue:
        value, path = queue.popleft()
        path = [*path, type(value).__name__]
        if isinstance(value, kinds):
            return path
        for each in referred(value):
            if id(each) not in seen and not isinstance(each, beside):
                seen.add(id(each))
                queue.append((each, path))
    return None


def foreign_classes(tree: ast.Module, path: str) -> Iterator[tuple[int, str]]:
    """Yield the classes of other components that constructors of a module take, each with its line."""
    own, bound = path.partition("/")[0], aliases(tree, path)
    for made in ast.walk(tree):
        if not isinstance(made, ast.FunctionDef) or made.name != "__init__":
            continue
        for argument in (*made.args.args, *made.args.kwonlyargs):
            for name in ast.walk(argument.annotation or ast.Constant(None)):
                full = bound.get(name.id, "") if isinstance(name, ast.Name) else ""
                root, _, rest = full.partition(".")
                is_foreign = rest.split(".")[0] in {*COMPONENTS} - {own}
                if root == "gapless" and is_foreign and acts(full):
                    yield argument.lineno, full


def acts(name: str) -> bool:
    """Return whether a name is of a class that is no Protocol, and whose objects are no values."""
    module, _, attribute = name.rpartition(".")
    found = getattr(importlib.import_module(module), attribute)
    is_value = isinstance(found, type) and issubclass(found, tuple | Enum | msgspec.Struct)
    is_protocol = getattr(found, "_is_protocol", False)
    return isinstance(found, type) and not (is_value or is_protocol or found in READ_BY_ALL)


def component_files() -> Iterator[tuple[str, Path]]:
    """Yield the modules of components that call others, each with its path below the sources."""
    for path in source_files():
        name = path.relative_to(SOURCES).as_posix()
        if name.split("/")[0] in {*COMPONENTS} - {*READS_CLASSES}:
            yield name, path


def attached_later(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the methods beside constructors that keep a callback or a listener in a field."""
    for method in ast.walk(tree):
        if not isinstance(method, ast.FunctionDef) or method.name == "__init__":
            continue
        callbacks = {
            argument.arg
            for argument in (*method.args.args, *method.args.kwonlyargs)
            if argument.annotation is not None
            and any(word in ast.unparse(argument.annotation) for word in ("Callable", "Listener"))
        }
        for node in ast.walk(method):
            if (
                isinstance(node, ast.Assign)
                and any(isinstance(target, ast.Attribute) for target in node.targets)
                and isinstance(node.value, ast.Name)
                and node.value.id in callbacks
            ):
                yield node.lineno, method.name


def test_no_component_imports_the_broker() -> None:
    assert set(imports_of_the_broker()) <= EXCEPTIONS.keys()


@pytest.fixture(scope="module")
def broker() -> Broker:
    return running_broker()


@pytest.mark.parametrize("name", Components._fields)
def test_no_component_refers_to_the_broker(broker: Broker, name: str) -> None:
    assert path_to((Broker,), getattr(broker.components, name)) is None


@pytest.mark.parametrize("name", Components._fields)
def test_a_component_reaches_those_above_it_only_through_the_notifications(
    broker: Broker, name: str
) -> None:
    found = path_to((Components, Dispatch), getattr(broker.components, name), (Notifications,))
    assert found is None


def test_a_reference_to_the_broker_is_found(broker: Broker) -> None:
    class Part:
        def __init__(self, broker: Broker) -> None:
            self.act = [lambda: broker.next_timer() or 0]

    assert path_to((Broker,), Part(broker)) is not None
    assert path_to((Components,), Part(broker)) is not None
    assert path_to((Components,), broker.components.sessions) is not None, "by the notifications"


def test_constructors_take_protocols_of_other_components() -> None:
    found = [
        f"{name}:{line}: {each}"
        for name, path in component_files()
        for line, each in foreign_classes(ast.parse(path.read_text()), name)
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("annotation", "is_found"),
    [
        ("Router", True),
        ("Router | None", True),
        ("Mapping[str, Router]", True),
        ("Peers", False),
        ("FeedInput", False),
        ("Tree", False),
    ],
)
def test_a_planted_class_of_another_component_is_found(annotation: str, *, is_found: bool) -> None:
    imports = (
        "from gapless.routing.router import Router\nfrom gapless.overlay.peers import Peers\n"
        "from gapless.feeds.feed_state import FeedInput\nfrom gapless.overlay.tree import Tree\n"
    )
    source = f"{imports}class A:\n    def __init__(self, given: {annotation}) -> None: ..."
    assert bool([*foreign_classes(ast.parse(source), "pubend/pubends.py")]) is is_found
    assert not [*foreign_classes(ast.parse(source), "routing/sending.py")] or annotation != "Router"


def test_no_callback_is_attached_after_construction() -> None:
    found = [
        f"{name}:{line}: {method}"
        for name, path in component_files()
        for line, method in attached_later(ast.parse(path.read_text()))
    ]
    assert not found, "\n".join(found)


def test_a_planted_callback_that_is_attached_later_is_found() -> None:
    source = "class A:\n    def {}(self, act: Callable[[], None]) -> None:\n        self.act = act"
    assert [*attached_later(ast.parse(source.format("bind")))] == [(3, "bind")]
    assert not [*attached_later(ast.parse(source.format("__init__")))]
