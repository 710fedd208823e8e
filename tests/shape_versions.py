"""Short forms of shape versions, for tests."""

from __future__ import annotations

from gapless.messages.overlay import ShapeVersion

__all__ = ["shape"]


def shape(count: int) -> ShapeVersion:
    """Return a shape version of the first term."""
    return ShapeVersion(count=count)
