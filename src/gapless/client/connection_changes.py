"""News of the connections of a session: log lines, and a callback of the program.

The logger ``gapless.client`` gets a line at INFO for every connection, and one at WARNING for every lost
connection and for the first failed attempt after that. The callback gets a :class:`ConnectionChange` for
every connection and every loss.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from typing import Final, TypeAlias

import msgspec

from gapless.core.address import Address
from gapless.core.errors import ClosedError, GaplessError, UsageError, shown_value
from gapless.core.printable import printable_line

__all__ = ["ConnectionCallback", "ConnectionChange", "ConnectionReporter"]

_LOG: Final = logging.getLogger("gapless.client")


class ConnectionChange(msgspec.Struct, frozen=True):
    """A session has connected to a broker, or has lost its connection."""

    connected: bool
    broker: str
    """The name of the broker."""
    address: str
    reason: str = ""
    """Why the connection was lost."""


ConnectionCallback: TypeAlias = Callable[[ConnectionChange], object]


class ConnectionReporter:
    """Reports the changes of all links of a session."""

    def __init__(self, session: str, callback: ConnectionCallback | None = None) -> None:
        if callback is not None and not callable(callback):
            raise UsageError(f"on_connection is a callable, not {shown_value(callback)}")
        if inspect.iscoroutinefunction(callback):
            raise UsageError(
                "on_connection is an ordinary function, not an async one; it may create a task"
            )
        self._session = session
        self._callback = callback

    def connected(self, broker: str, address: Address) -> None:
        """A broker has accepted a connection."""
        _LOG.info(
            "%s: connected to the broker %s at %s", self._session, printable_line(broker), address
        )
        self._call(ConnectionChange(True, broker, str(address)))

    def lost(self, broker: str, address: Address, reason: str) -> None:
        """A connection was lost. The link dials again."""
        _LOG.warning(
            "%s: lost the connection to the broker %s: %s; reconnecting",
            self._session,
            printable_line(broker),
            printable_line(reason),
        )
        self._call(ConnectionChange(False, broker, str(address), reason))

    def failed(self, trouble: str) -> None:
        """No address has accepted a connection. The link tries again."""
        trouble = printable_line(trouble)
        _LOG.warning("%s: no broker can be reached: %s; trying again", self._session, trouble)

    def waits(self, reason: str) -> None:
        """A call waits for a broker that may host a durable subscription, until its deadline."""
        _LOG.warning("%s: %s; waiting", self._session, printable_line(reason))

    def gave_up(self, error: GaplessError) -> None:
        """The link does not dial again."""
        if not isinstance(error, ClosedError):
            _LOG.warning("%s: not connecting again: %s", self._session, error)

    def _call(self, change: ConnectionChange) -> None:
        if self._callback is not None:
            try:
                self._callback(change)
            except Exception:  # noqa: BLE001 - the connection must not suffer from it
                _LOG.exception("on_connection failed at %s", change)
