"""The settings of one broker."""

from __future__ import annotations

from pathlib import Path

import msgspec

from gapless.audit.options import AuditOptions
from gapless.core.address import Address
from gapless.core.errors import UsageError
from gapless.core.ids import BrokerId, CellId
from gapless.core.limits import EVENT_BYTES_MAX
from gapless.core.parameters import DEFAULTS, Parameters
from gapless.runtime.authentication import AccessOptions
from gapless.runtime.overlay_config import OverlayConfig, single

__all__ = ["BrokerSettings"]


class BrokerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One broker: its name, its overlay, its addresses and its data directory."""

    name: BrokerId = "b1"
    overlay: OverlayConfig = single()
    data: Path | None = None
    """The data directory; without one nothing survives a stop."""
    listen: Address = Address()
    advertise: Address | None = None
    """The address at which others reach the broker, if it is not ``listen``."""
    metrics: Address | None = None
    """The address of /metrics and /healthz; None: they are not served."""
    parameters: Parameters = DEFAULTS
    audit: AuditOptions | None = None
    """Where publications and deliveries are recorded; None: nowhere."""
    access: AccessOptions | None = None
    """Which tokens are required; None: none."""
    join: bool = False
    """Whether the broker starts alone and takes clients when it was appended to a tree (RS-15)."""
    restarts: int = 0
    """How often a supervisor has restarted the broker."""
    disk_shared_by: int = 1
    """How many brokers have their data on this disk."""

    def __post_init__(self) -> None:
        """Refuse a broker outside its overlay, too large frames, and tokens without a secret."""
        if self.overlay.cell_of(self.name) is None:
            raise UsageError(f"the overlay {self.overlay.name} has no broker {self.name}")
        if self.join and self.overlay.brokers != [(self.name, self.cell)]:
            raise UsageError("a broker that joins an overlay starts alone: name no other broker")
        if self.parameters.frame_bytes_max > EVENT_BYTES_MAX:
            raise UsageError(
                f"frame_bytes_max ({self.parameters.frame_bytes_max:,}) must not be above "
                f"{EVENT_BYTES_MAX:,}: an event that comes in one frame must go out in one"
            )

        if self.access is None or not self.access.tokens or self.access.broker_token:
            return
        if len(self.overlay.brokers) > 1:
            raise UsageError(
                "with access.tokens brokers authenticate each other: name a file "
                "with a secret, the same in the whole overlay, as access.broker_token"
            )

    @property
    def cell(self) -> CellId:
        """The cell of this broker."""
        cell = self.overlay.cell_of(self.name)
        assert cell is not None
        return cell
