"""A broker process that can be measured: ``python -m gapless_lab.fuzz.probed_broker CONFIG``.

It runs the product's node. It reports that it is ready in a line of JSON, and answers each line of
its standard input with a measurement: ``steps``, or ``memory`` after a collection of garbage. It
stops when its standard input ends.
"""

from __future__ import annotations

import asyncio
import faulthandler
import signal
import sys
from pathlib import Path
from typing import Any

import msgspec

from gapless.runtime.config import BrokerConfig, load_config
from gapless.runtime.logs import set_up_logs
from gapless.runtime.node import Node
from gapless.runtime.process import (
    EXIT_BROKEN,
    EXIT_STOPPED,
    keep_freed_memory,
    run_loop,
    settle_down,
)
from gapless_lab.fuzz.probe import (
    BrokerMeasurement,
    ProbedDriver,
    StepProbe,
    function_caches,
    measure_memory,
)

__all__ = ["main"]


class _ProbedNode(Node):
    """A node whose steps are measured."""

    driver_class = ProbedDriver


class _ProbedBroker:
    """The node of this process, and what was measured."""

    def __init__(self, config: BrokerConfig) -> None:
        self._probe = ProbedDriver.probe = StepProbe()
        self._errors: list[str] = []
        self._caches = function_caches()
        self.ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.node = _ProbedNode(config.settings, on_failure=self._failed)

    def note_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Note an error that nothing has handled."""
        loop.default_exception_handler(context)
        self._errors.append(f"{context.get('message')}: {context.get('exception')!r}"[:500])

    def _failed(self, error: BaseException) -> None:
        del error  # the log has it
        self._end(EXIT_BROKEN)

    def _end(self, code: int) -> None:
        if not self.ended.done():
            self.ended.set_result(code)

    async def answer(self, lines: asyncio.StreamReader) -> None:
        """Answer requests until the input ends."""
        while line := await lines.readline():
            measurement = self._measured(with_memory=line.strip() == b"memory")
            _write(msgspec.json.encode(measurement))
        self._end(EXIT_STOPPED)

    def _measured(self, *, with_memory: bool) -> BrokerMeasurement:
        node = self.node
        errors, self._errors = self._errors, []
        slowest = self._probe.take_slowest()
        traffic = (node.clients.traffic, node.links.traffic, node.acceptor.traffic)
        parts = node.broker.components
        stored = {
            "pubends": len(parts.hosted),
            "subscriptions": len(parts.registry.subscriptions),
            "clients": len(node.clients),
        }
        return BrokerMeasurement(
            memory=measure_memory(self._caches) if with_memory else None,
            frames=sum(each.frames_in for each in traffic),
            steps=node.driver.steps,
            slowest=slowest,
            errors=errors,
            stored=stored,
        )


def _write(line: bytes) -> None:
    sys.stdout.buffer.write(line + b"\n")
    sys.stdout.buffer.flush()


async def _serve(config: BrokerConfig) -> int:
    loop = asyncio.get_running_loop()
    lines = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    broker = _ProbedBroker(config)
    loop.set_exception_handler(broker.note_error)
    await broker.node.start()
    settle_down()
    _write(b"{}")
    answering = asyncio.create_task(broker.answer(lines))
    code = await broker.ended
    await broker.node.stop()
    answering.cancel()
    return code


def main(path: str) -> int:
    """Run the broker of a configuration file."""
    config = load_config(Path(path))
    set_up_logs(config.log.level, config.log.format, None)
    faulthandler.register(signal.SIGUSR1)  # for a step that does not end
    keep_freed_memory()
    return run_loop(_serve(config))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
