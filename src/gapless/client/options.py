"""What a session may be told about patience."""

from __future__ import annotations

from typing import Final

import msgspec

from gapless.audit.options import AuditOptions
from gapless.client.credentials import Credentials
from gapless.core.backoff import Backoff
from gapless.core.errors import UsageError

__all__ = ["DEADLINE_S", "FAILOVER_AFTER_S", "SessionOptions", "Unset", "chosen"]

DEADLINE_S: Final = 30.0
"""How long a call may take, unless the session or the call says otherwise."""


FAILOVER_AFTER_S: Final = 5.0
"""How long a durable subscription waits for its broker: a restart is over by then, a death is not."""


class Unset(msgspec.Struct, frozen=True):
    """Stands for a deadline that was not given: the session's holds. None means none at all."""


def chosen(deadline_s: float | Unset | None, default: float | None) -> float | None:
    """Return the deadline of a call in seconds, None if it has none."""
    found = default if isinstance(deadline_s, Unset) else deadline_s
    try:
        is_wrong = found is not None and not found > 0
    except TypeError:  # it is no number
        is_wrong = True
    if is_wrong:
        raise UsageError(f"a deadline is a time above 0 in seconds, or None; not {found!r}")
    return found


class SessionOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What holds for all of a session."""

    name: str = ""
    """What people may call the client; it stands in the broker's lists."""
    deadline_s: float | None = DEADLINE_S
    connect_deadline_s: float | None = 10.0
    """How long the first connection may take; later ones are tried for ever."""
    backoff: Backoff = Backoff()
    failover_after_s: float | None = FAILOVER_AFTER_S
    """How long the broker of a durable subscription may be out of reach before that goes on at another;
    None: it waits for its broker."""
    audit: AuditOptions | None = None
    """Where to write down what was published and received, if anywhere."""
    audit_name: str = "client"
    """Whose log it is; those of one name share what a log may hold."""
    credentials: Credentials = Credentials()
    """Who the client is, to brokers that ask."""
    seed: int | None = None
    """For the waits between attempts; None takes one from the system."""
