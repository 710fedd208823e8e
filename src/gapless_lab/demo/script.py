"""The script of a run: kills, disconnects, new subscribers, changes of filters."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, NamedTuple, Protocol, TypeAlias

from gapless.core.ids import BrokerId
from gapless_lab.demo.workload import DESK_FIRST, DESK_LATER, DemoFilter, DemoRoles

__all__ = ["ScriptActions", "ScriptStep", "script_for"]


class ScriptActions(Protocol):
    """The actions of a step."""

    async def kill(self, broker: BrokerId, why: str) -> None:
        """Kill a broker; it is started again with its data directory."""

    async def leave(self, subscriber: str) -> None:
        """Disconnect a durable subscriber."""

    async def come_back(self, subscriber: str) -> None:
        """Connect the subscriber again."""

    async def enter(self, subscriber: str) -> None:
        """Start a new subscriber."""

    async def switch(self, subscriber: str, new_filter: DemoFilter) -> None:
        """Change the filter of a subscription."""


Act: TypeAlias = Callable[[ScriptActions], Coroutine[Any, Any, None]]


class ScriptStep(NamedTuple):
    """An action, and its time in seconds."""

    at_s: float
    act: Act


SHORT_S = 15.0
"""A shorter run has time for one kill only."""

MORE_S = 60.0
"""A longer run has more kills, at random, one every ten seconds."""


def script_for(roles: DemoRoles, seconds: float, random: Random) -> list[ScriptStep]:
    """Return the steps of a run of this length, in order."""
    hosts = {
        "pubend": roles.publisher("nyse-1").brokers[0],
        "durable": roles.subscriber("desk").brokers[0],
        "total": roles.subscriber("ledger").brokers[0],
        "moving": roles.subscriber("blue").brokers[0],
    }
    parts: list[tuple[float, Act]] = [
        (0.20, lambda actions: actions.kill(hosts["pubend"], "it hosts the pubend nyse")),
        (0.45, lambda actions: actions.switch("desk", DESK_LATER)),
        (0.50, lambda actions: actions.enter("late")),
    ]
    if seconds >= SHORT_S:
        parts += [
            (0.28, lambda actions: actions.leave("abroad")),
            (
                0.36,
                lambda actions: actions.kill(hosts["durable"], "it hosts the subscription desk"),
            ),
            (0.56, lambda actions: actions.kill(roles.router, "it is in the middle of the tree")),
            (0.64, lambda actions: actions.come_back("abroad")),
            (
                0.70,
                lambda actions: actions.kill(hosts["moving"], "the subscriber blue must fail over"),
            ),
            (
                0.80,
                lambda actions: actions.kill(
                    hosts["pubend"], "for the second time, together with another"
                ),
            ),
            (
                0.80,
                lambda actions: actions.kill(hosts["total"], "it hosts the subscription ledger"),
            ),
            (0.81, lambda actions: actions.switch("desk", DESK_FIRST)),
        ]
    parts += [(each, _anyone(roles, random)) for each in _more(seconds, random)]
    jitter = 0.01 * seconds
    steps = [ScriptStep(part * seconds + random.uniform(0, jitter), act) for part, act in parts]
    return sorted(steps, key=lambda scene: scene.at_s)


def _more(seconds: float, random: Random) -> list[float]:
    """Return the times of random kills in a long run, as fractions of it."""
    return [random.uniform(0.2, 0.9) for _ in range(int((seconds - MORE_S) // 10))]


def _anyone(roles: DemoRoles, random: Random) -> Act:
    hosts = {broker for publisher in roles.publishers for broker in publisher.brokers}
    hosts |= {broker for subscriber in roles.subscribers for broker in subscriber.brokers}
    chosen = random.choice(sorted(hosts))
    return lambda actions: actions.kill(chosen, "chosen at random")
