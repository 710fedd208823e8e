"""The demo as a whole: brokers, clients, the script, the audit."""

from __future__ import annotations

import asyncio
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Final

import msgspec
from rich.console import Console

from gapless.audit.options import AuditOptions
from gapless.core.ids import BrokerId
from gapless.runtime.broker_process import ProcessEvent, ProcessStage
from gapless.runtime.overlay_config import overlay_of
from gapless.runtime.supervisor import Supervisor
from gapless_lab.demo.audit import Audit, audit_files
from gapless_lab.demo.clients import DemoCounters, DemoPublisher, DemoSubscriber
from gapless_lab.demo.records import RecordFile
from gapless_lab.demo.runs import (
    drain,
    empty_directory,
    keep_showing,
    record_files,
    until_signal,
)
from gapless_lab.demo.screen import Screen, make_console, show_audit
from gapless_lab.demo.script import script_for
from gapless_lab.demo.workload import TESTS, DemoFilter, DemoRoles, PublisherRole, assign_roles

__all__ = ["EXIT_INTERRUPTED", "EXIT_UNCLEAN", "DemoOptions", "perform", "perform_and_show"]

EXIT_UNCLEAN: Final = 1
EXIT_INTERRUPTED: Final = 128 + signal.SIGINT

PARAMETERS: Final = {"redial_max_ms": 500}
"""Brokers on one computer may reconnect often."""

AUDIT: Final = "audit"
"""The directory of the audit logs of brokers and clients, below the directory of the demo. The
demo's own audit does not read it; it allows a second audit."""

DRAIN_S: Final = 30.0
"""How long the last events may take to arrive before they count as lost."""

READY_S: Final = 30.0
"""How long a broker may take to be ready before it is killed again."""


class DemoOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of the demo."""

    seconds: float = 40.0
    """How long quotes are published; starting, draining and stopping come on top."""
    topology: str = "tree:2x3"
    seed: int = 1
    rate: float = 500.0
    """Events per second of all publishers together."""


class DemoResult(msgspec.Struct, kw_only=True):
    """What ``--json`` prints."""

    options: DemoOptions
    kills: int
    restarts: int
    clean: bool
    audit: Audit


class _DemoRun:
    """The overlay and its clients, on which the script acts."""

    def __init__(
        self,
        supervisor: Supervisor,
        roles: DemoRoles,
        screen: Screen,
        tally: DemoCounters,
        audit: Path,
    ) -> None:
        self._supervisor = supervisor
        self._audit = audit
        self._screen = screen
        self._tally = tally
        self._tasks: asyncio.TaskGroup
        self._records: dict[str, RecordFile] = {}
        self.subscribers = {
            part.name: DemoSubscriber(
                part, [supervisor[each].url for each in part.brokers], tally, audit
            )
            for part in roles.subscribers
        }

    def publisher(self, part: PublisherRole, options: DemoOptions) -> DemoPublisher:
        """Return a publisher at its broker."""
        url = self._supervisor[part.brokers[0]].url
        return DemoPublisher(part, url, options.rate, options.seed, self._tally, self._audit)

    def open(self, records: dict[str, RecordFile], tasks: asyncio.TaskGroup) -> None:
        """Allow subscribers to start."""
        self._records, self._tasks = records, tasks

    async def kill(self, broker: BrokerId, why: str) -> None:
        """Kill a broker; it is started again with its data directory."""
        async with asyncio.timeout(READY_S):
            await self._supervisor[broker].settled.wait()
        self._supervisor.kill(broker)
        self._tally.kills += 1
        self._screen.say(f"kill -9 {broker}: {why}", style="bold red")

    async def leave(self, subscriber: str) -> None:
        """Disconnect a durable subscriber."""
        self.subscribers[subscriber].leave()
        self._screen.say(f"{subscriber} disconnects", style="yellow")

    async def come_back(self, subscriber: str) -> None:
        """Connect the subscriber again."""
        self.subscribers[subscriber].come_back()
        self._screen.say(
            f"{subscriber} reconnects, and must receive all that it missed", style="yellow"
        )

    async def enter(self, subscriber: str) -> None:
        """Start a new subscriber."""
        entering = self.subscribers[subscriber]
        self._tasks.create_task(entering.run(self._records[subscriber]))
        if entering.role.start == "earliest":
            self._screen.say(f"{subscriber} starts, from the earliest tick on", style="yellow")

    async def switch(self, subscriber: str, new_filter: DemoFilter) -> None:
        """Change the filter of a subscription."""
        await self.subscribers[subscriber].switch(new_filter)
        self._screen.say(f"{subscriber} changes its filter to: {new_filter.text}", style="yellow")

    def end(self) -> None:
        """End all subscribers."""
        for subscriber in self.subscribers.values():
            subscriber.end()


async def perform(options: DemoOptions, data: Path, screen: Screen, tally: DemoCounters) -> Audit:
    """Run the demo and return the audit; records and brokers' data are below ``data``."""
    overlay = overlay_of(options.topology)
    roles = assign_roles(overlay)
    directory = data / "records"

    def happened(happening: ProcessEvent) -> None:
        if happening.stage is ProcessStage.READY and supervisor[happening.broker].restarts:
            tally.restarts += 1
            screen.say(f"{happening.broker} is back", style="green")

    supervisor = Supervisor(
        overlay,
        data / "brokers",
        port=0,
        parameters=PARAMETERS,
        audit=AuditOptions.of(data / AUDIT),
        on_event=happened,
    )
    screen.say(f"starting {len(supervisor.brokers)} brokers …")
    try:
        await supervisor.start()
        screen.show_roles(roles, supervisor)
        with record_files(roles, directory) as records:
            run = _DemoRun(supervisor, roles, screen, tally, data / AUDIT)
            show = asyncio.create_task(keep_showing(screen, supervisor))
            try:
                await _play(options, roles, run, records, directory, screen)
            finally:
                show.cancel()
    finally:
        screen.say("stopping the brokers …")
        await supervisor.stop()
    return audit_files(directory, TESTS)


async def _play(
    options: DemoOptions,
    roles: DemoRoles,
    run: _DemoRun,
    records: dict[str, RecordFile],
    directory: Path,
    screen: Screen,
) -> None:
    """Run all clients and the script until every expected event has arrived."""
    end = asyncio.Event()
    publishers = [run.publisher(part, options) for part in roles.publishers]
    async with asyncio.TaskGroup() as watching:
        run.open(records, watching)
        async with asyncio.TaskGroup() as publishing:
            for publisher in publishers:
                publishing.create_task(publisher.run(records[publisher.role.name], end))
            for publisher in publishers:
                await publisher.ready.wait()
            for part in roles.subscribers:
                if part.start == "latest":
                    await run.enter(part.name)
                    await run.subscribers[part.name].ready.wait()
            screen.phase("publishing")
            await _follow_script(options, roles, run)
            end.set()
        screen.phase("waiting for the last events")
        await drain(records, directory, DRAIN_S)
        run.end()


async def _follow_script(options: DemoOptions, roles: DemoRoles, run: _DemoRun) -> None:
    loop = asyncio.get_running_loop()
    started_at = loop.time()
    random = Random(options.seed)  # noqa: S311  # a seed gives the same script again
    async with asyncio.TaskGroup() as acting:
        for step in script_for(roles, options.seconds, random):
            await asyncio.sleep(max(0.0, started_at + step.at_s - loop.time()))
            acting.create_task(step.act(run))  # a slow step does not delay the next
    await asyncio.sleep(max(0.0, started_at + options.seconds - loop.time()))


def perform_and_show(
    options: DemoOptions,
    data: Path | None = None,
    *,
    as_json: bool = False,
    then: Callable[[Path, Path], bool] | None = None,
) -> int:
    """Run the demo, show it, and return the exit code: 0 only if the audit is clean.

    ``then`` gets the directory of the audit logs and the overlay's file, and returns whether it
    found everything clean. The files are kept if ``data`` is given or if an audit is not clean.
    """
    console, tally = make_console(), DemoCounters()
    directory, is_kept = empty_directory(data, "gapless-demo-"), data is not None
    try:
        with Screen(console, tally, quiet=as_json) as screen:
            audit = asyncio.run(until_signal(perform(options, directory, screen, tally)))
        if audit is None:
            return EXIT_INTERRUPTED
        _print_result(console, options, tally, audit, as_json=as_json)
        logs, tree = directory / AUDIT, directory / "brokers" / "overlay.toml"
        is_clean = audit.is_clean and (then is None or then(logs, tree))
        is_kept |= not is_clean
        if is_kept and not as_json:
            console.print(f"records and logs of the brokers are in {directory}", soft_wrap=True)
        return 0 if is_clean else EXIT_UNCLEAN
    finally:
        if not is_kept:
            shutil.rmtree(directory)


def _print_result(
    console: Console, options: DemoOptions, tally: DemoCounters, audit: Audit, *, as_json: bool
) -> None:
    if not as_json:
        show_audit(console, audit, tally)
        return
    result = DemoResult(
        options=options,
        kills=tally.kills,
        restarts=tally.restarts,
        clean=audit.is_clean,
        audit=audit,
    )
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(result), indent=2).decode() + "\n")
