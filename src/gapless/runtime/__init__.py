"""The broker on real clocks, sockets and disks: the second driver, on asyncio.

Theory of operation
-------------------
A :class:`Node` is one incarnation of a broker. It opens the store (:mod:`.stores`) and makes the
machine from the stored records. From then on it passes events to the machine and carries out its
effects (:mod:`.driver`): frames of :mod:`gapless.wire` become events; effects become frames, writes
and one timer. The protocols are in the machine, which the simulator drives too.

A connection (:mod:`.connection`) passes every complete frame to its handler, in the order of
arrival. A connection is pending until its handshake (:mod:`.acceptor`), then it belongs to a client
session (:mod:`.clients`) or to a link (:mod:`.links`). The frames that steps send are collected per
connection and written after the last step that is ready. A single event does not wait. Disk writes
are collected too and become durable once per turn of the event loop (:mod:`.disk_queue`).

Invariants
----------
- One step runs at a time: an event that an effect causes is handled after the current step.
- An exception in a step ends the incarnation (:class:`MachineError`); so does a failed write. The
  data on disk is consistent, and a supervisor starts the next incarnation from it.
- A frame that is malformed, too large or not expected closes its connection, with a disconnect
  reason. Other connections are not affected.
- Every queue is bounded. The machine learns when a link is congested. A client that does not read
  is disconnected. Publishers are not read from while the disk is behind.
- Every client connection has a name of its own, so that the machine never takes a new connection of
  a client for the lost one.
- A broker listens on the loopback interface by default, and logs a warning if it is open to others.
- If tokens are required, a connection becomes a client or a peer only with a valid token. No token
  is in a log, in an error or among the arguments of a process.

:mod:`.authentication` checks tokens against the files of :mod:`.principals`.

Around a node: :mod:`.config` and :mod:`.overlay_config` read the configuration files,
:mod:`.metrics` and :mod:`.health` report its state over :mod:`.http`, :mod:`.logs` writes log lines
and :mod:`.logfile` keeps them in files of bounded size. :mod:`.process` makes a node a process with
signals and exit codes, :mod:`.supervisor` runs an overlay of such processes
(:mod:`.broker_process`, :mod:`.overlay_directory`).
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
