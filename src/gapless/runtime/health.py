"""The state of a broker, as ``/healthz`` shows it."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Literal

import msgspec

from gapless.core.ids import BrokerId, CellId
from gapless.core.printable import printable_json
from gapless.core.version import PROTOCOL_VERSIONS, VERSION
from gapless.runtime.http import Page

if TYPE_CHECKING:
    from gapless.runtime.node import Node

__all__ = ["Health", "health_of", "health_page"]


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """The current state of a broker."""

    broker: BrokerId
    cell: CellId
    overlay: str
    incarnation: int
    version: str
    protocols: tuple[int, ...]
    """The versions of the protocol that it supports."""
    status: Literal["ok", "stopping"]
    url: str
    uptime_s: float
    links: list[BrokerId]
    links_missing: list[BrokerId]
    """Peers without a link. The broker runs without them: what they must receive is kept."""
    refused: dict[str, str]
    """Corrupt pubends and subscriptions that are not served, and why."""
    disk_free_bytes: int | None
    """Free bytes on the disk; None without a data directory."""
    disk_warning: str
    """What to do about a disk that is nearly full; empty if there is enough space."""
    corrupt: dict[str, str]
    """Pubends whose log has a corrupt row: they are served up to it, and why."""


def health_of(node: Node) -> Health:
    """Return the state of a node for operators and monitoring."""
    return Health(
        broker=node.name,
        cell=node.cell,
        overlay=node.settings.overlay.name,
        incarnation=node.broker.context.identity.incarnation,
        version=VERSION,
        protocols=PROTOCOL_VERSIONS,
        status="ok" if node.is_running else "stopping",
        url=node.url,
        uptime_s=round(node.uptime_s, 3),
        links=node.links.open_peers,
        links_missing=sorted(node.links.peers.difference(node.links.open_peers)),
        refused=node.refused,
        disk_free_bytes=node.disk_watch.space and node.disk_watch.space.free,
        disk_warning=node.disk_watch.warning,
        corrupt={
            str(pubend): why for pubend, why in node.broker.components.pubends.corruptions.items()
        },
    )


def health_page(health: Health) -> Page:
    """Return the page; its status shows whether clients should connect here."""
    status = HTTPStatus.OK if health.status == "ok" else HTTPStatus.SERVICE_UNAVAILABLE
    body = printable_json(msgspec.json.encode(health)) + "\n"
    return Page(body.encode(), "application/json", status)
