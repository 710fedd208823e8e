"""The broker on real clocks, sockets and disks: the second driver, on asyncio.

Theory of operation
-------------------
A :class:`Node` is one life of a broker. It opens the store (:mod:`.stores`), makes the machine from
what is there, and from then on carries events in and effects out (:mod:`.driver`): frames of
:mod:`gapless.wire` become events, effects become frames, writes and one timer. Nothing is decided
here that the protocols decide: the simulator drives the same machine.

A connection (:mod:`.connection`) hands every whole frame to its handler, in the order of arrival.
It is a newcomer until it has introduced itself (:mod:`.acceptor`), then a client (:mod:`.clients`) or
a link (:mod:`.links`). What steps have to say is gathered by connection and written when they are
through: what is ready goes out together, and a lone event waits for nothing. Writes are gathered too,
and become durable once in a turn of the event loop (:mod:`.disk_queue`).

Invariants
----------
- One step at a time: what an effect causes happens behind the step that caused it.
- An exception inside a step ends this life (:class:`MachineError`); so does a failed write. What is
  on disk is sound, and a supervisor begins the next life from there.
- What cannot be understood, is too large or stands in the wrong place ends the connection that it
  came on, with a reason that the other side can read. Others do not notice.
- Everything that waits is bounded. Of a link that is behind the machine is told, a client that is
  behind is let go, a publisher that is ahead of the disk is not read from.
- A client's connection has a name of its own: one that comes back is never taken for the one that
  was lost.
- A broker listens on the loopback unless told otherwise, and says so when it is open to others.
- Where tokens are asked for, nobody is a client or a peer before one is shown that is taken. No token is
  in a log, in an error or among the arguments of a process.

:mod:`.authentication` says at the door who a newcomer is, by the files of :mod:`.principals`.

Around a node: :mod:`.config` and :mod:`.overlay_config` read what operators write, :mod:`.metrics` and
:mod:`.health` show how it is (:mod:`.http`), :mod:`.logs` says what happens, :mod:`.logfile` keeps that
in files of bounded size, :mod:`.process` makes it a process with signals and exit codes,
:mod:`.supervisor` runs an overlay of such processes (:mod:`.broker_process`, :mod:`.overlay_directory`).
"""

from gapless.core.address import PORT, Address
from gapless.runtime.broker_process import BrokerProcess, ProcessEvent, ProcessStage
from gapless.runtime.config import BrokerConfig, LogConfig, load_config
from gapless.runtime.driver import MachineError
from gapless.runtime.health import Health
from gapless.runtime.logs import LogFormat, set_up_logs
from gapless.runtime.node import Node
from gapless.runtime.overlay_config import OverlayConfig, generate, load_overlay, overlay_of, single
from gapless.runtime.process import run_broker, run_loop, serve
from gapless.runtime.settings import BrokerSettings
from gapless.runtime.supervisor import BrokerStartError, Supervisor, supervise

__all__ = [
    "PORT",
    "Address",
    "BrokerConfig",
    "BrokerProcess",
    "BrokerSettings",
    "BrokerStartError",
    "Health",
    "LogConfig",
    "LogFormat",
    "MachineError",
    "Node",
    "OverlayConfig",
    "ProcessEvent",
    "ProcessStage",
    "Supervisor",
    "generate",
    "load_config",
    "load_overlay",
    "overlay_of",
    "run_broker",
    "run_loop",
    "serve",
    "set_up_logs",
    "single",
    "supervise",
]
