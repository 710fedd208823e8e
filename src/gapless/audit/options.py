"""Options of an audit log."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final

import msgspec

from gapless.core.errors import UsageError
from gapless.core.limits import PARAMETER_TIME_MAX
from gapless.core.paths import PathText

__all__ = ["SEGMENT_BYTES_LEAST", "AuditOptions"]

SEGMENT_BYTES_LEAST: Final = 4_096
"""A smaller segment would consist mostly of its first records."""

SEGMENTS_LEAST: Final = 4
"""Full segments that fit into ``bytes_max``, so that trimming removes only the older part."""


class AuditOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Location, size and content of an audit log."""

    directory: PathText
    bytes_max: Annotated[int, msgspec.Meta(ge=0)] = 1_073_741_824
    """Bytes of all segments of one broker or one client name; the oldest are removed first."""
    segment_bytes: Annotated[int, msgspec.Meta(ge=SEGMENT_BYTES_LEAST)] = 16_777_216
    """The size at which a segment is ended."""
    segment_s: Annotated[int, msgspec.Meta(ge=1, le=PARAMETER_TIME_MAX)] = 300
    """The age at which a segment is ended, so that jobs that follow the log can read it."""
    flush_ms: Annotated[int, msgspec.Meta(ge=1, le=60_000)] = 100
    """How long records may wait to be written."""
    attributes: bool = True
    """Whether attributes are recorded. Without them the expected events cannot be computed."""

    def __post_init__(self) -> None:
        """Refuse a log that is too small for its segments."""
        if self.bytes_max < SEGMENTS_LEAST * self.segment_bytes:
            raise UsageError(
                f"bytes_max ({self.bytes_max:,}) must be at least {SEGMENTS_LEAST} times "
                f"segment_bytes ({self.segment_bytes:,})"
            )

    @classmethod
    def of(cls, given: AuditOptions | str | Path) -> AuditOptions:
        """Return the given options, or the default options for a directory."""
        if isinstance(given, AuditOptions):
            return given
        path: Any = given
        if not isinstance(path, str | Path) or not str(path):
            raise UsageError(f"audit is a directory or AuditOptions, not {given!r:.60}")
        return cls(directory=str(given))

    @property
    def path(self) -> Path:
        """The directory."""
        return Path(self.directory)
