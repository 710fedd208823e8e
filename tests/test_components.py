"""The components do not depend on the broker that contains them."""

from __future__ import annotations

import ast
import gc
from collections import deque
from collections.abc import Iterable
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any, Final

import pytest

from gapless.broker import Broker
from gapless.broker.assembly import Components
from gapless.core.context import StepTime
from gapless.core.effects import Write
from gapless.core.events import Written
from gapless.core.parameters import Parameters
from gapless.overlay.neighbourhood import Topology
from tests.test_layers import EXCEPTIONS, SOURCES, imported_names, source_files

USERS_OF_THE_BROKER: Final = ("broker", "runtime", "testing", "cli")
"""The packages that may import the broker: they drive it."""

NOW: Final = StepTime(10_000_000, 1_000_000_000)


def running_broker() -> Broker:
    """Return a broker whose incarnation is on disk."""
    topology = Topology.of({"p": ["p"], "n": ["n"]}, [("p", "n")])
    broker = Broker("p", "p", Parameters(), topology.neighbourhood("p", 1), (), NOW)
    (write,) = broker.step(None, NOW)
    assert isinstance(write, Write)
    broker.step(Written(write.write_id), NOW)
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


def path_to_a_broker(start: object) -> list[str] | None:
    """Return the types on a path of references from an object to a broker, or None if there is no path."""
    queue: deque[tuple[object, list[str]]] = deque([(start, [])])
    seen = {id(start)}
    while queue:
        value, path = queue.popleft()
        path = [*path, type(value).__name__]
        if isinstance(value, Broker):
            return path
        for each in referred(value):
            if id(each) not in seen:
                seen.add(id(each))
                queue.append((each, path))
    return None


def test_no_component_imports_the_broker() -> None:
    assert set(imports_of_the_broker()) <= EXCEPTIONS.keys()


@pytest.mark.parametrize("name", Components._fields)
def test_no_component_refers_to_the_broker(name: str) -> None:
    broker = running_broker()
    assert path_to_a_broker(getattr(broker.components, name)) is None


def test_a_reference_to_the_broker_is_found() -> None:
    class Part:
        def __init__(self, broker: Broker) -> None:
            self.act = [lambda: broker.next_timer() or 0]

    assert path_to_a_broker(Part(running_broker())) is not None
