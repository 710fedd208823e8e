"""A chaos run as a whole: network, brokers, clients, faults, the audit, the verdict."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from random import Random
from typing import Final

import msgspec

from gapless.client import connect
from gapless.runtime.broker_process import BrokerProcess, ProcessEvent, ProcessStage
from gapless.runtime.overlay_config import OverlayConfig, overlay_of
from gapless.runtime.supervisor import Supervisor
from gapless_lab.chaos.connectivity import connected_streams, subscribers_to_fail_over
from gapless_lab.chaos.faults import Fault, FaultAction, count_kinds, draw_faults
from gapless_lab.chaos.flow import Counts, Failover, ObservedStream, StreamRecovery, tabulate
from gapless_lab.chaos.namespaces import Namespaces
from gapless_lab.chaos.networks import BreakableNetwork, ChaosNetworkKind
from gapless_lab.chaos.proxies import Proxies
from gapless_lab.chaos.roles import FICKLE, VISITOR, assign_roles
from gapless_lab.chaos.subscriber_pool import SubscriberPool
from gapless_lab.chaos.timing import parameters_for, timing_for
from gapless_lab.chaos.verdict import ChaosOptions, ChaosVerdict, show_verdict
from gapless_lab.demo.audit import audit_files
from gapless_lab.demo.clients import DemoCounters, DemoPublisher
from gapless_lab.demo.records import RecordFile
from gapless_lab.demo.runs import (
    drain,
    empty_directory,
    keep_showing,
    record_files,
    until_signal,
)
from gapless_lab.demo.screen import Screen, make_console
from gapless_lab.demo.workload import TESTS

__all__ = ["EXIT_INTERRUPTED", "EXIT_UNCLEAN", "perform", "perform_and_show"]

EXIT_UNCLEAN: Final = 1
EXIT_INTERRUPTED: Final = 128 + signal.SIGINT

TEMPORARY_AFTER: Final = 0.3
"""When temporary subscribers start, as a fraction of a fault's least duration: sometimes before the
fault can have been detected, sometimes later."""

TIMEOUT_S: Final = 60.0
"""A stream with a route that does not flow for this long is stuck."""

REST_S: Final = 0.5
"""The mean pause between two faults: some faults start just after the previous one, some later."""

DRAIN_S: Final = 120.0
"""How long the last events may take to arrive before they count as lost."""


class _ChaosRun:
    """The brokers, the clients, and the faults."""

    def __init__(
        self,
        options: ChaosOptions,
        overlay: OverlayConfig,
        network: BreakableNetwork,
        screen: Screen,
        counters: DemoCounters,
    ) -> None:
        self.options = options
        self.overlay = overlay
        self.network = network
        self.screen = screen
        self.counters = counters
        self.roles = assign_roles(overlay)
        self.flow = StreamRecovery()
        self.faults: list[str] = []
        self.failovers: list[Failover] = []
        self.stuck: list[str] = []
        self._subscribers: SubscriberPool | None = None
        self._supervisor: Supervisor | None = None

    @property
    def supervisor(self) -> Supervisor:
        """The supervisor of the brokers."""
        assert self._supervisor is not None, "the run has not started"
        return self._supervisor

    @property
    def subscribers(self) -> SubscriberPool:
        """All subscribers."""
        assert self._subscribers is not None, "the run has not started"
        return self._subscribers

    async def start(self, data: Path) -> None:
        """Start the network and the brokers."""
        self._supervisor = Supervisor(
            await self.network.start(self.overlay),
            data / "brokers",
            parameters=parameters_for(self.options.session_timeout_ms),
            placement=self.network,
            on_event=self._happened,
        )
        self.screen.say(f"starting {len(self.supervisor.brokers)} brokers …")
        await self.supervisor.start()
        self.screen.show_roles(self.roles, self.supervisor)
        urls = {each.name: each.url for each in self.supervisor.brokers}
        self._subscribers = SubscriberPool(self.roles, urls, self.counters, self.flow)

    async def stop(self) -> None:
        """Stop the brokers and the network, as far as they were started."""
        if self._supervisor is not None:
            await self._supervisor.stop()
        await self.network.stop()

    def _happened(self, happening: ProcessEvent) -> None:
        if happening.stage is ProcessStage.READY and self.supervisor[happening.broker].restarts:
            self.counters.restarts += 1

    async def remaining_partitions(self) -> list[str]:
        """Return the partitions that brokers still list some time after the last heal."""
        loop = asyncio.get_running_loop()
        limit = loop.time() + TIMEOUT_S
        while True:
            found = [line for each in self.supervisor.brokers for line in await _listed(each)]
            if not found or loop.time() >= limit:
                return found
            await asyncio.sleep(1.0)

    # --- clients -------------------------------------------------------------------------------

    async def play(self, records: dict[str, RecordFile], directory: Path) -> None:
        """Run publishers, subscribers and faults until every expected event has arrived."""
        options, end = self.options, asyncio.Event()
        urls = {part.name: self.supervisor[part.brokers[0]].url for part in self.roles.publishers}
        publishers = [
            DemoPublisher(part, urls[part.name], options.rate, options.seed, self.counters)
            for part in self.roles.publishers
        ]
        async with asyncio.TaskGroup() as watching:
            async with asyncio.TaskGroup() as publishing:
                for publisher in publishers:
                    publishing.create_task(publisher.run(records[publisher.role.name], end))
                for publisher in publishers:
                    await publisher.ready.wait()
                await self.subscribers.open(records, watching)
                await self.subscribers.locate_durables()
                self.screen.phase("chaos")
                await self._run_faults()
                end.set()
            self.screen.phase("waiting for the last events")
            self.subscribers.add([VISITOR])  # it must receive what it has missed
            await drain(records, directory, DRAIN_S)
            self.subscribers.end()

    # --- faults --------------------------------------------------------------------------------

    async def _run_faults(self) -> None:
        """Make one fault after the other until time is up, and every kind at least once."""
        loop = asyncio.get_running_loop()
        limit = loop.time() + self.options.minutes * 60
        random = Random(self.options.seed)  # noqa: S311  # a seed gives the same faults again
        least = count_kinds(self.overlay)
        drawn = draw_faults(self.overlay, random, self.options.session_timeout_ms)
        for number, faults in enumerate(drawn):
            if number >= least and loop.time() >= limit:
                return
            await self._run_fault(faults)
            await asyncio.sleep(random.uniform(0, 2 * REST_S))

    async def _run_fault(self, faults: Sequence[Fault]) -> None:
        """Make faults, check that streams with a route flow, heal, check that all streams flow."""
        text = " and ".join(fault.text for fault in faults)
        self.faults.append(text)
        self.screen.say(text, style="bold red")
        temporary = self.subscribers.temporary_for({fault.kind for fault in faults})
        present = self.subscribers.present(temporary)
        wanted = set(connected_streams(self.overlay, self.roles.publishers, present, faults))
        # if all streams of the filter have a route, it must change during the fault, else after it
        is_due = wanted.issuperset(self.subscribers.streams_of(FICKLE))
        flaps: list[asyncio.Task[None]] = []
        over = asyncio.Event()
        try:
            for fault in faults:
                await self._harm(fault)
                if fault.flap_s:
                    flaps.append(asyncio.create_task(self._flap(fault, over)))
            self.flow.reset()
            changing = asyncio.create_task(self.subscribers.change_filter())
            hold_s = max(fault.hold_s for fault in faults)
            due = changing if is_due else None
            await self._check_during_fault(temporary, wanted, due, hold_s, text)
            moving = subscribers_to_fail_over(self.overlay, present, faults)
            during, moved, joined = self._times(wanted, moving, temporary)
            everything = self.subscribers.streams
            waited = len(self.flow.still(everything))
        finally:
            over.set()
            await asyncio.gather(*flaps)
            self.flow.reset()
            for fault in faults:
                await self._heal(fault)
        await self._await_flow(everything, f"after: {text}")
        if not is_due:
            await self._await_change(changing, f"after: {text}")
        after = self.flow.slowest_s(everything)
        await self.subscribers.locate_durables()
        await self.subscribers.remove_temporary()
        kind = faults[0].kind if len(faults) == 1 else "two at once"
        counts = Counts(len(everything), len(wanted), waited)
        found = Failover(kind, during, after, moved, joined, counts)
        self.failovers.append(found)
        self.screen.say(f"  {found.story}", style="green")

    async def _check_during_fault(
        self,
        temporary: Collection[str],
        wanted: Collection[ObservedStream],
        changing: asyncio.Task[str | None] | None,
        hold_s: float,
        text: str,
    ) -> None:
        """Start temporary subscribers, and check that streams with a route flow during the fault."""
        hold = asyncio.create_task(asyncio.sleep(hold_s))
        await asyncio.sleep(TEMPORARY_AFTER * hold_s)
        self.flow.reset_for(temporary)
        self.subscribers.add(temporary)
        await self._await_flow(wanted, f"during: {text}")
        if changing is not None:
            await self._await_change(changing, f"during: {text}")
        await hold

    def _times(
        self, wanted: Collection[ObservedStream], moving: Collection[str], coming: Collection[str]
    ) -> list[float | None]:
        """Return the times of streams: without failover, with failover, of new subscriptions."""
        moved = {stream for stream in wanted if stream.subscriber in moving}
        joined = {stream for stream in wanted if stream.subscriber in coming}
        stayed = set(wanted) - moved - joined
        return [self.flow.slowest_s(some) for some in (stayed, moved, joined)]

    async def _await_flow(self, wanted: Collection[ObservedStream], when: str) -> None:
        """Wait until streams flow; record those that do not."""
        for stream in await self.flow.await_all(wanted, TIMEOUT_S):
            self._note_stuck(f"{stream} did not advance for {TIMEOUT_S:g} s {when}")

    async def _await_change(self, changing: asyncio.Task[str | None], when: str) -> None:
        """Wait until a filter is changed; record a failure or a time-out."""
        done, _ = await asyncio.wait([changing], timeout=TIMEOUT_S)
        trouble = changing.result() if done else f"no filter was changed for {TIMEOUT_S:g} s"
        if trouble is not None:
            self._note_stuck(f"{trouble} {when}")

    def _note_stuck(self, what: str) -> None:
        self.stuck.append(what)
        self.screen.say(what, style="bold red")

    async def _harm(self, fault: Fault) -> None:
        await self.network.cut(fault.cuts)
        for victim in fault.victims:
            if fault.action is FaultAction.KILL:
                self.supervisor.prevent_restart(victim)
                self.supervisor.kill(victim)
                self.counters.kills += 1
            elif fault.action is FaultAction.FREEZE:
                self._signal(victim, signal.SIGSTOP)

    async def _flap(self, fault: Fault, over: asyncio.Event) -> None:
        """Heal the cut links and cut them again until the fault is over; leave them cut."""
        while not over.is_set():
            await asyncio.sleep(fault.flap_s)
            await self.network.heal(fault.cuts)
            await asyncio.sleep(fault.flap_s)
            await self.network.cut(fault.cuts)

    async def _heal(self, fault: Fault) -> None:
        await self.network.heal(fault.cuts)
        for victim in fault.victims:
            if fault.action is FaultAction.KILL:
                self.supervisor.allow_restart(victim)
            elif fault.action is FaultAction.FREEZE:
                self._signal(victim, signal.SIGCONT)

    def _signal(self, broker: str, number: signal.Signals) -> None:
        pid = self.supervisor[broker].pid
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)


async def _listed(broker: BrokerProcess) -> list[str]:
    """Return the partitions that a broker lists."""
    async with connect(broker.url) as session:
        return [f"{broker.name} lists {each}" for each in await session.partitions()]


async def perform(
    options: ChaosOptions,
    kind: ChaosNetworkKind,
    data: Path,
    screen: Screen,
    counters: DemoCounters,
) -> ChaosVerdict:
    """Run the faults and return the verdict; records and brokers' data are below ``data``."""
    network: BreakableNetwork = Namespaces() if kind is ChaosNetworkKind.NAMESPACES else Proxies()
    overlay = overlay_of(options.topology, delta=options.delta)
    run = _ChaosRun(options, overlay, network, screen, counters)
    directory = data / "records"
    try:
        await run.start(data)
        with record_files(run.roles, directory) as records:
            show = asyncio.create_task(keep_showing(screen, run.supervisor))
            try:
                await run.play(records, directory)
                listed = await run.remaining_partitions()
            finally:
                show.cancel()
    finally:
        screen.say("stopping the brokers …")
        await run.stop()
    return ChaosVerdict(
        options=options,
        network=kind,
        timing=timing_for(options.session_timeout_ms),
        faults=run.faults,
        failover_times=tabulate(run.failovers),
        stuck=run.stuck,
        listed=listed,
        kills=counters.kills,
        restarts=counters.restarts,
        failovers=run.subscribers.failovers,
        audit=audit_files(directory, TESTS),
    )


def perform_and_show(
    options: ChaosOptions,
    kind: ChaosNetworkKind,
    data: Path | None = None,
    *,
    as_json: bool = False,
) -> int:
    """Run the faults, show the verdict, and return the exit code: 0 only if it is clean.

    The files are kept if ``data`` is given or if the verdict is not clean.
    """
    console, counters = make_console(), DemoCounters()
    directory, is_kept = empty_directory(data, "gapless-chaos-"), data is not None
    try:
        with Screen(console, counters, quiet=as_json) as screen:
            screen.say(
                f"seed {options.seed}, {options.topology}, δ = {options.delta}, {kind.value}"
            )
            work = perform(options, kind, directory, screen, counters)
            verdict = asyncio.run(until_signal(work))
        if verdict is None:
            return EXIT_INTERRUPTED
        is_kept |= not verdict.clean
        verdict.kept = str(directory) if is_kept else None
        if as_json:
            text = msgspec.json.format(msgspec.json.encode(verdict), indent=2).decode()
            sys.stdout.write(text + "\n")
        else:
            show_verdict(console, verdict, counters)
        return 0 if verdict.clean else EXIT_UNCLEAN
    finally:
        if not is_kept:
            shutil.rmtree(directory)
