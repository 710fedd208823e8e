"""Faults: when each kind strikes in the safety phase, and what heals before the liveness phase.

Faults of a kind strike at random times at the kind's rate, except in quiet periods. Most end after
a while. :mod:`.outages` has the faults of whole cells. The **core** (:mod:`.liveness_core`) is the
part that must work in the liveness phase. Everything in it heals and stays healthy, except for
links that it does not need. Hosts and links outside the core may stay broken for ever, or break
then.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from gapless_lab.sim.liveness_core import LivenessCore
from gapless_lab.sim.network import HostPair
from gapless_lab.sim.options import SimulatedNetworkKind
from gapless_lab.sim.outages import Outages
from gapless_lab.sim.regions import OUTAGE_KINDS

if TYPE_CHECKING:
    from gapless_lab.sim.workload import Workload
    from gapless_lab.sim.world import SimulatedHost, World

__all__ = ["FaultInjector"]


class FaultInjector:
    """Injects faults and heals the core."""

    def __init__(self, world: World, workload: Workload) -> None:
        self._world = world
        self._workload = workload
        workload.aim = self.aim
        workload.bounce = self.bounce
        self._options = world.options
        self._random = world.stream("faults")
        self.over = False
        periods = 1 + self._options.safety_ms // max(1, self._options.period_ms)
        self._quiet = [self._random.random() < self._options.quiet for _ in range(periods + 1)]
        self._outages = Outages(world, lambda: not self._is_quiet())
        self._kinds: dict[str, Callable[[], bool]] = {
            "crash": self._crash,
            "crash inside a sync": self._crash_inside_sync,
            "pause": self._pause,
            "cut": self._cut,
            "one-way cut": self._cut_one_way,
            "permanent cut": self._cut_for_ever,
            "reset": self._reset,
            "loss": self._lose,
            "skipped packet": self._skip,
            "clock jump": self._jump,
            "client loss": self._lose_client,
            "slow client": self._slow_client,
            "full disk": self._fill_disk,
            "damage": self._corrupt_row,
            **{kind: partial(self._break_cells, kind) for kind in OUTAGE_KINDS},
        }

    def start(self) -> None:
        """Set the clock errors and schedule the faults."""
        error = self._options.clock_error_us
        for host in self._world.hosts.values():
            host.clock_error = self._random.randint(-error, error)
        for kind, rate in self._options.rates.items():
            if rate > 0:
                self._plan(kind, rate)

    def _plan(self, kind: str, rate: float) -> None:
        random = self._world.stream("faults", kind)

        def strike() -> None:
            if self.over:
                return
            if not self._is_quiet():
                self._random = random  # each kind has its own random numbers
                if self._kinds[kind]():
                    self._world.count_fault(kind)
            self._world.after(int(random.expovariate(rate) * 1_000_000), strike)

        self._world.after(int(random.expovariate(rate) * 1_000_000), strike)

    def _is_quiet(self) -> bool:
        period = self._world.now // (self._options.period_ms * 1_000)
        return self.over or self._quiet[min(period, len(self._quiet) - 1)]

    def aim(self, host: SimulatedHost) -> None:
        """Arm a crash of a host inside its next sync, if that kind of fault may strike now."""
        if self._options.rates.get("crash inside a sync") and not self._is_quiet():
            host.crash_armed = True

    def bounce(self, host: SimulatedHost) -> None:
        """Crash a host and restart it later, if that kind of fault may strike now."""
        if self._options.rates.get("crash") and not self._is_quiet() and host.process is not None:
            self._world.count_fault("crash")
            self._world.crash(host)
            self._later(lambda: self._world.start(host))

    def hold_up(self, host: SimulatedHost) -> None:
        """Pause a host for a while, if that kind of fault may strike now."""
        if self._options.rates.get("pause") and not self._is_quiet() and host.process is not None:
            self._world.count_fault("pause")
            self._world.pause(host)
            self._later(lambda: self._world.resume(host))

    def _later(self, action: Callable[[], None]) -> None:
        """Schedule the end of a fault."""
        self._world.after(self._options.down_us(self._random), action)

    # --- hosts -------------------------------------------------------------------------------

    def _host(self) -> SimulatedHost | None:
        running = [host for host in self._world.hosts.values() if host.process is not None]
        return self._random.choice(running) if running else None

    def _crash(self) -> bool:
        host = self._host()
        if host is not None:
            self._world.crash(host)
            self._later(lambda: self._world.start(host))
        return host is not None

    def _crash_inside_sync(self) -> bool:
        host = self._host()
        if host is not None:
            host.crash_armed = True
        return False  # counted when it strikes

    def _pause(self) -> bool:
        host = self._host()
        if host is not None:
            self._world.pause(host)
            self._later(lambda: self._world.resume(host))
        return host is not None

    def _jump(self) -> bool:
        host = self._random.choice(list(self._world.hosts.values()))
        size = self._random.choice((1_000, 100_000, 2_000_000, 60_000_000))
        self._world.jump_clock(host, self._random.randint(-size, size))
        return True

    def _fill_disk(self) -> bool:
        host = self._random.choice(list(self._world.hosts.values()))
        host.disk.full = True
        self._world.note(host.broker, "disk is full")
        self._later(lambda: self._empty_disk(host))
        return True

    def _empty_disk(self, host: SimulatedHost) -> None:
        host.disk.full = False
        self._world.start(host)

    def _corrupt_row(self) -> bool:
        logs = [
            (host, pubend, rows)
            for host in self._world.hosts.values()
            for pubend, rows in host.disk.logs.items()
            if rows
        ]
        if logs:
            host, pubend, rows = self._random.choice(logs)
            first = self._random.choice(rows).first
            host.disk.corrupt_row(pubend, first)
            self._world.note(host.broker, f"row {first} of {pubend} is corrupt")
        return bool(logs)

    # --- links -------------------------------------------------------------------------------

    def _pair(self) -> HostPair | None:
        pairs = self._world.network.dialled_pairs()
        return self._random.choice(pairs) if pairs else None

    def _cut_pair(self, *, both: bool, permanent: bool) -> bool:
        pair = self._pair()
        if pair is None:
            return False
        links = list(pair.links) if both else [self._random.choice(pair.links)]
        for link in links:
            self._world.network.cut(link, permanent=permanent)

        def heal() -> None:
            for link in links:
                if link.cut and not link.permanent and not link.held:
                    self._world.network.heal(link)

        if not permanent:
            self._later(heal)
        return True

    def _cut(self) -> bool:
        return self._cut_pair(both=True, permanent=False)

    def _cut_one_way(self) -> bool:
        return self._cut_pair(both=False, permanent=False)

    def _cut_for_ever(self) -> bool:
        return self._cut_pair(both=self._random.random() < 0.5, permanent=True)

    def _reset(self) -> bool:
        pair = self._pair()
        if pair is None or self._options.network is not SimulatedNetworkKind.SESSION:
            return False
        self._world.network.reset(pair)
        return True

    def _lose(self) -> bool:
        pair = self._pair()
        if pair is None or self._options.network is not SimulatedNetworkKind.DATAGRAM:
            return False
        rate = self._random.choice((0.02, 0.1, 0.5))
        for link in pair.links:
            link.loss = rate

        def mend() -> None:
            for link in pair.links:
                link.loss = 0.0

        self._later(mend)
        return True

    def _skip(self) -> bool:
        """Lose the next packet of a connection; later packets arrive."""
        pair = self._pair()
        if pair is not None and self._options.network is SimulatedNetworkKind.SESSION:
            self._random.choice(pair.links).skips = True
        return False  # counted when it strikes

    # --- whole cells -------------------------------------------------------------------------

    def _break_cells(self, kind: str) -> bool:
        return self._outages.strike(kind, self._random)

    # --- clients -----------------------------------------------------------------------------

    def _lose_client(self) -> bool:
        workload = self._workload
        clients = [*workload.publishers, *workload.staged_writers, *workload.live()]
        client = self._random.choice(clients)
        disconnected_us = self._options.down_us(self._random)
        unseen = self._options.down_us(self._random) if self._random.random() < 0.5 else 0
        client.drop(disconnected_us=disconnected_us, unseen_us=unseen)
        return True

    def _slow_client(self) -> bool:
        live = self._workload.live()
        if not live:
            return False
        subscriber = self._random.choice(live)
        subscriber.slow = True

        def read_again() -> None:
            subscriber.slow = False
            subscriber.give_credit()

        self._later(read_again)
        return True

    # --- healing -----------------------------------------------------------------------------

    def mend(self) -> None:
        """End the safety phase with all hosts and links working."""
        self.over = True
        self._outages.let_go()
        for pair in self._world.network.pairs:
            for link in pair.links:
                link.loss, link.skips = 0.0, False
                if link.cut:
                    self._world.network.heal(link)
        for host in self._world.hosts.values():
            host.crash_armed = host.disk.full = False
            self._world.resume(host)
            self._world.start(host)

    def heal(self) -> None:
        """End the safety phase: the core heals for good; hosts outside it heal, fail or stay as
        they are.
        """
        self.over = True
        self._outages.let_go()
        world = self._world
        random = world.stream("healing")
        whole = random.random() < self._options.whole_core
        core = LivenessCore(world, world.stream("core"), whole=whole)
        world.core = [host for host in world.hosts.values() if host.broker in core.brokers]
        world.note("world", f"the core {', '.join(sorted(core.brokers))} heals")
        for pair in world.network.pairs:
            self._heal_pair(pair, core, random)
        for host in world.hosts.values():
            host.crash_armed = False
            fate = 1.0 if host in world.core or self._options.calm else random.random()
            if host not in world.core and host.cell in core.cells:
                fate *= 0.5  # a broker of a core cell that the core does without never works again
            if fate < 0.3:
                world.crash(host, "for ever")
                host.doomed = True
            elif fate < 0.5:
                world.pause(host)
                host.doomed = True
            elif fate > 0.75:
                host.disk.full = False
                world.resume(host)
                world.start(host)

    def _heal_pair(self, pair: HostPair, core: LivenessCore, random: Random) -> None:
        """Heal the links that the core needs; others heal, stay cut or are cut now."""
        within = all(link.source.broker in core.brokers for link in pair.links)
        fate = 1.0 if core.keeps_links(pair) else 0.0 if core.has_cut(pair) else random.random()
        for link in pair.links:
            if within:
                link.loss = 0.0
                link.skips = False
            if fate > 0.5 and link.cut:
                self._world.network.heal(link)
        if fate < 0.2 and not self._options.calm:
            self._world.network.cut(random.choice(pair.links), permanent=True)
