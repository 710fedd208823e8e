"""What may be chosen of an audit log."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import msgspec

from gapless.core.errors import UsageError

__all__ = ["SEGMENT_BYTES_LEAST", "AuditOptions"]

SEGMENT_BYTES_LEAST: Final = 4_096
"""A smaller segment would be mostly its own beginning."""

SEGMENTS_LEAST: Final = 4
"""So many segments of full size fit into ``bytes_max``, so that trimming takes the older part only."""


class AuditOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the log is, how large it may be and what is in it."""

    directory: str
    bytes_max: Annotated[int, msgspec.Meta(ge=0)] = 1_073_741_824
    """Bytes of all segments of one broker, or of one name of clients; the oldest go first."""
    segment_bytes: Annotated[int, msgspec.Meta(ge=SEGMENT_BYTES_LEAST)] = 16_777_216
    """A segment that is so large is ended."""
    segment_s: Annotated[int, msgspec.Meta(ge=1)] = 300
    """A segment that is so old is ended, so that who follows the log sees it."""
    flush_ms: Annotated[int, msgspec.Meta(ge=1, le=60_000)] = 100
    """How long records may wait to be written."""
    attributes: bool = True
    """Whether publications have their attributes; without them it cannot be computed what is owed."""

    def __post_init__(self) -> None:
        """Refuse a log that could not hold some segments."""
        if self.bytes_max < SEGMENTS_LEAST * self.segment_bytes:
            raise UsageError(
                f"bytes_max ({self.bytes_max:,}) must be at least {SEGMENTS_LEAST} times "
                f"segment_bytes ({self.segment_bytes:,})"
            )

    @classmethod
    def of(cls, given: AuditOptions | str | Path) -> AuditOptions:
        """Return the options of a directory, or those that were given."""
        return given if isinstance(given, AuditOptions) else cls(directory=str(given))

    @property
    def path(self) -> Path:
        """The directory."""
        return Path(self.directory)
