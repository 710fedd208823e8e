"""How a broker is, as ``/healthz`` shows it."""

from __future__ import annotations

from http import HTTPStatus
from typing import Literal

import msgspec

from gapless.core.ids import BrokerId, CellId
from gapless.runtime.http import Page

__all__ = ["Health", "health_page"]


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """How a broker is now."""

    broker: BrokerId
    cell: CellId
    overlay: str
    incarnation: int
    status: Literal["ok", "stopping"]
    url: str
    uptime_s: float
    links: list[BrokerId]
    links_missing: list[BrokerId]
    """Peers that it cannot reach. It is well without them: what is owed to them waits."""
    refused: dict[str, str]
    """What is damaged and not served, and why."""
    corrupt: dict[str, str]
    """Pubends whose log has a row that was met and cannot be read: they are served up to it."""


def health_page(health: Health) -> Page:
    """Return the page: with a status that says whether to send clients here."""
    status = HTTPStatus.OK if health.status == "ok" else HTTPStatus.SERVICE_UNAVAILABLE
    return Page(msgspec.json.encode(health) + b"\n", "application/json", status)
