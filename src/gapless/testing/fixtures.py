"""Fixtures for pytest."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gapless.client import SyncSession, connect_sync
from gapless.testing.overlay import SyncOverlay

__all__ = ["gapless_overlay", "gapless_session", "pytest_configure"]


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line(
        "markers", "gapless_topology(overlay): the overlay of gapless_overlay, such as line:3"
    )


@pytest.fixture
def gapless_overlay(request: pytest.FixtureRequest) -> Iterator[SyncOverlay]:
    """An overlay of one broker, or the overlay of the marker ``gapless_topology``."""
    marker = request.node.get_closest_marker("gapless_topology")
    with SyncOverlay(marker.args[0] if marker else "line:1") as overlay:
        yield overlay


@pytest.fixture
def gapless_session(gapless_overlay: SyncOverlay) -> Iterator[SyncSession]:
    """A session with the first broker of the overlay."""
    with connect_sync(gapless_overlay.url()) as session:
        yield session
