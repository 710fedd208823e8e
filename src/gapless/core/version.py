"""The version of gapless, and the versions of its protocol."""

from __future__ import annotations

from typing import Final

__all__ = ["PROTOCOL_VERSIONS", "VERSION"]

VERSION: Final = "0.1.0"

PROTOCOL_VERSIONS: Final = (4,)
"""The versions of the wire format that this version supports, oldest first."""
