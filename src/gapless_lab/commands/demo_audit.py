"""The end of a demo with Spark: a second audit and a profile of the traffic."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from gapless.cli.output import print_note
from gapless.cli.spark_audit import show_audit, show_profile
from gapless.cli.spark_sessions import session
from gapless.core.errors import UsageError

if TYPE_CHECKING:
    from gapless.runtime.overlay_config import OverlayConfig

__all__ = ["audit_and_profile"]


def audit_and_profile(logs: Path, tree: Path) -> bool:
    """Show an audit and a profile of a demo if Spark is installed; return False if the audit is not
    clean.

    The published events are read from the streams on the brokers' disks, the deliveries from the
    logs. The brokers of the demo have stopped, so they are started again for the read.
    """
    from rich.console import Console

    from gapless.runtime.overlay_config import load_overlay
    from gapless.spark.extra import need_spark
    from gapless.spark.java import find_java
    from gapless_lab.demo.workload import assign_roles

    try:
        need_spark()
        find_java()
    except UsageError as error:
        print_note(f"no second audit with Spark: {error}")
        return True
    from gapless.spark.jobs.auditing import audit
    from gapless.spark.jobs.profiling import profile

    overlay = load_overlay(tree)
    pubends = sorted({feed.pubend for feed in assign_roles(overlay).publishers})
    screen = Console(stderr=True)
    with (
        _brokers_again(overlay, tree.parent) as servers,
        session("local[*]", "demo") as made,
        screen.status("auditing again with Spark, from the streams and the audit logs"),
    ):
        made.conf.set(
            "spark.sql.shuffle.partitions", "2"
        )  # the data is small, and many tasks cost more
        options = {"servers": ",".join(servers), "pubends": ",".join(pubends)}
        events = made.read.format("gapless").options(**options).load()
        found = audit(made, [logs], events=events)
        traffic = profile(made, [logs], overlay)
    show_audit(found)
    show_profile(traffic)
    return found.is_clean


@contextmanager
def _brokers_again(overlay: OverlayConfig, data: Path) -> Iterator[list[str]]:
    """Start the brokers of a demo with their data directories and yield their addresses.

    They write no audit log, so that they add nothing to the audited logs.
    """
    import msgspec

    from gapless.client.loop_thread import EventLoopThread
    from gapless.runtime.supervisor import Supervisor
    from gapless_lab.demo.run import PARAMETERS

    without_addresses = msgspec.structs.replace(overlay, addresses={})  # the old ports may be taken
    supervisor = Supervisor(without_addresses, data, port=0, parameters=PARAMETERS)
    loop_thread = EventLoopThread()
    try:
        loop_thread.run(supervisor.start())
        yield supervisor.urls
    finally:
        loop_thread.run(supervisor.stop())
        loop_thread.stop()
