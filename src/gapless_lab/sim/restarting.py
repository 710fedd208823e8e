"""Programs that start again, kept nothing, and look for their durable subscription by its name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.ids import BrokerId
from gapless.messages.clients import RefusalCause, Refused, Subscribed

if TYPE_CHECKING:
    from gapless_lab.sim.oracle import Oracle
    from gapless_lab.sim.world import SimulatedHost, World

__all__ = ["HostSearch"]

ADDRESSES_MAX = 3
"""The maximum number of brokers in the list of a program."""


class HostSearch:
    """Where one program looks for its subscription, and what it knew of it (MV-15).

    The oracle knows the incarnation key of the subscription. The program does not: after a restart
    it has only the list of its brokers.
    """

    def __init__(self, world: World, oracle: Oracle, name: str, first: SimulatedHost) -> None:
        self._world = world
        self._oracle = oracle
        self._name = name
        self._random = world.stream("addresses", name)
        others = [host for host in world.hosts.values() if host is not first]
        more = min(len(others), self._random.randrange(ADDRESSES_MAX))
        self._addresses = [first, *self._random.sample(others, more)]
        self._next = 0
        self._redirected: SimulatedHost | None = None
        self._silent: tuple[BrokerId, ...] = ()
        """The brokers that the last refusal named as silent."""
        self._key = ""
        self.restarted = False
        """Whether the program has started again and its subscription is not found yet."""

    def may_restart(self) -> bool:
        """Draw whether the program starts again now."""
        return self._random.random() < self._world.options.restarts

    def restart(self) -> None:
        """The program starts again, at the first of its addresses."""
        self.restarted = True
        self.start_again()

    def start_again(self) -> None:
        """Ask the first of the addresses next."""
        self._next, self._redirected = 0, None

    def ended(self, host: SimulatedHost, *, erased: bool) -> None:
        """Check the reply to the end of a subscription by its name: it is not elsewhere."""
        elsewhere = self._oracle.newest_host_of(self._name)
        if not erased and elsewhere not in {None, host.broker}:
            self._world.violate(
                "end lost", f"{host.broker} has ended {self._name}, which {elsewhere} hosts"
            )

    def next_host(self) -> SimulatedHost:
        """Return the broker to ask next: the one of a redirection, or the next of the list."""
        redirected, self._redirected = self._redirected, None
        if redirected is not None:
            return redirected
        self._next += 1
        return self._addresses[(self._next - 1) % len(self._addresses)]

    def refused(self, notice: Refused) -> None:
        """Go where the refusal sends the program, or ask again."""
        self._silent = notice.silent
        if notice.cause is RefusalCause.WRONG_BROKER and notice.hosting is None:
            self._redirected = self._world.hosts[notice.broker]

    def subscribed(self, notice: Subscribed) -> None:
        """Check that there is one subscription of the name: the one that the program had."""
        assert notice.hosting is not None
        key = notice.hosting.incarnation_key
        if self.restarted and self._key not in {"", key}:
            self._world.violate(
                "second subscription", f"{self._name} was {self._key} and is {key} now"
            )
        self._key, self._silent, self.restarted = key, (), False

    @property
    def waits_for_the_dead(self) -> bool:
        """Whether the program lawfully waits for a broker that need not work.

        If a broker of the core hosts the subscription, the program must find it there.
        """
        core = {host.broker for host in self._world.core}
        if self._oracle.host_of(self._name) in core:
            return False
        return any(each not in core for each in self._silent)
