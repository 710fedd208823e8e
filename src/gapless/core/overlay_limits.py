"""The fixed limits of records of cells, of tombstones and of handshakes, each with its reason."""

from __future__ import annotations

from typing import Final

__all__ = [
    "CAPABILITIES_MAX",
    "CAPABILITY_NAME_MAX",
    "MEMBER_ADDRESSES_MAX",
    "RECORDS_MAX",
    "TOMBSTONES_MAX",
]

RECORDS_MAX: Final = 4_096
"""Records of cells that a broker holds, and those in one message. A broker has a session with every
broker within Δ, so more would be a mistake or a forgery; such records are refused."""

MEMBER_ADDRESSES_MAX: Final = 8
"""Addresses of one member of a cell."""

CAPABILITIES_MAX: Final = 32
"""Capabilities that a client names; each may change what its broker sends."""

CAPABILITY_NAME_MAX: Final = 32
"""Characters of the name of a capability."""

TOMBSTONES_MAX: Final = 65_536
"""Closed pubends that a broker remembers, so that no id is given twice. Then it closes no more."""
