"""Everything that one broker has to be told before it starts."""

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
    """One broker: who it is, where it listens, where it keeps what it must not forget."""

    name: BrokerId = "b1"
    overlay: OverlayConfig = single()
    data: Path | None = None
    """The data directory; without one nothing survives a stop."""
    listen: Address = Address()
    advertise: Address | None = None
    """Where others reach it, if that is not where it listens."""
    metrics: Address | None = None
    """Where /metrics and /healthz are, if anywhere."""
    parameters: Parameters = DEFAULTS
    audit: AuditOptions | None = None
    """Where to write down what was published and delivered, if anywhere."""
    access: AccessOptions | None = None
    """Whether others are asked who they are; None: nobody is."""
    restarts: int = 0
    """How often a supervisor has started it again."""

    def __post_init__(self) -> None:
        """Refuse a broker that is not in its own overlay."""
        if self.overlay.cell_of(self.name) is None:
            raise UsageError(f"the overlay {self.overlay.name} has no broker {self.name}")
        if self.parameters.frame_bytes_max > EVENT_BYTES_MAX:
            raise UsageError(
                f"frame_bytes_max ({self.parameters.frame_bytes_max:,}) must not be above "
                f"{EVENT_BYTES_MAX:,}: what comes in one frame must go out in one"
            )

        if self.access is None or not self.access.tokens or self.access.broker_token:
            return
        if len(self.overlay.brokers) > 1:
            raise UsageError(
                "with access.tokens brokers have to show each other that they are brokers: name a file "
                "with a secret, the same for all of the overlay, as access.broker_token"
            )

    @property
    def cell(self) -> CellId:
        """The cell of this broker."""
        cell = self.overlay.cell_of(self.name)
        assert cell is not None
        return cell
