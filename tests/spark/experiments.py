"""Functions and machines that the tests of sweeps run, importable by name in a task."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from gapless.broker import Broker
from gapless.core.context import StepTime
from gapless.core.effects import Effect, Notify
from gapless.core.events import MachineEvent
from gapless.messages.clients import Delivery
from tests.lab.sim.toy import ToyMachine

HERE: Final = "tests.spark.experiments"
LOSSY: Final = f"{HERE}:LossyToy"
FORGETFUL: Final = f"{HERE}:ForgetfulBroker"


class LossyToy(ToyMachine):
    """A machine that loses every seventh delivery, in any process."""

    def step(self, event: Any, now: Any) -> list[Any]:
        return [each for each in super().step(event, now) if not self._lost(each)]

    def _lost(self, effect: Any) -> bool:
        if not (isinstance(effect, Notify) and isinstance(effect.notice, Delivery)):
            return False
        self.context.mark("planted")
        return self.context.coverage_marks["planted"] % 7 == 0


class ForgetfulBroker(Broker):
    """A broker that loses every sixtieth delivery: only seeds with that many fail."""

    def step_all(self, events: Iterable[MachineEvent], now: StepTime) -> list[Effect]:
        return [each for each in super().step_all(events, now) if not self._lost(each)]

    def _lost(self, effect: Effect) -> bool:
        if not (isinstance(effect, Notify) and isinstance(effect.notice, Delivery)):
            return False
        self.context.mark("planted")
        return self.context.coverage_marks["planted"] % 60 == 0


def area(point: dict[str, Any]) -> dict[str, Any]:
    """Return the area of a rectangle; height 13 fails."""
    if point["height"] == 13:
        raise ValueError("unlucky")
    return {"area": point["width"] * point["height"]}


def stall(point: dict[str, Any]) -> dict[str, Any]:
    """Leave a trace, and take long except at the first point."""
    (Path(point["traces"]) / str(point["n"])).touch()
    if point["n"]:
        time.sleep(60)
    return {}


def die(point: dict[str, Any]) -> dict[str, Any]:
    """Kill the worker process."""
    os._exit(int(point["n"]))


def nested(point: dict[str, Any]) -> dict[str, Any]:
    """Return a row that is not flat."""
    return {"all": [point]}
