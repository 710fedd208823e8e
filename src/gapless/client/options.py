"""Options of a session: deadlines, reconnect back-off, failover."""

from __future__ import annotations

from typing import Final

import msgspec

from gapless.audit.options import AuditOptions
from gapless.client.arguments import check_seconds
from gapless.client.connection_changes import ConnectionReporter
from gapless.client.credentials import Credentials
from gapless.core.backoff import Backoff

__all__ = ["DEADLINE_S", "FAILOVER_AFTER_S", "SessionOptions", "Unset", "chosen"]

DEADLINE_S: Final = 30.0
"""The default deadline of a call."""


FAILOVER_AFTER_S: Final = 5.0
"""How long a durable subscription waits for its broker: longer than a restart takes."""


class Unset(msgspec.Struct, frozen=True):
    """A deadline that was not given: the session's applies. None means no deadline."""


def chosen(
    deadline_s: float | Unset | None, default: float | None, name: str = "deadline_s"
) -> float | None:
    """Return the deadline of a call in seconds, or None if it has none."""
    return default if isinstance(deadline_s, Unset) else check_seconds(name, deadline_s)


class SessionOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options that apply to a whole session."""

    name: str = ""
    """The name of the client in the broker's lists."""
    deadline_s: float | None = DEADLINE_S
    connect_deadline_s: float | None = 10.0
    """How long the first connection may take; later ones are tried without limit."""
    backoff: Backoff = Backoff()
    failover_after_s: float | None = FAILOVER_AFTER_S
    """How long the hosting broker of a durable subscription may be unreachable before the
    subscription fails over to another; None: it waits for its broker."""
    audit: AuditOptions | None = None
    """The audit log of what was published and received, if there is one."""
    audit_name: str = "client"
    """The name of the audit log; clients of one name share its size limit."""
    reporter: ConnectionReporter | None = None
    """Gets the news of all connections."""
    credentials: Credentials = Credentials()
    """The token that identifies the client."""
    seed: int | None = None
    """The seed of the waits between attempts; None takes one from the system."""
