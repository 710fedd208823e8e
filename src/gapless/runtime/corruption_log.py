"""Log lines about corrupt logs: one when a log is corrupt, one when its corruption is released (P8)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gapless.core.ids import PubendId
from gapless.runtime.logs import StructuredLog

__all__ = ["CORRUPTION_LOG_INTERVAL_S", "CorruptionLog"]

CORRUPTION_LOG_INTERVAL_S: Final = 0.5
"""How often newly found corruptions are logged."""


class CorruptionLog:
    """Compares the corrupt logs of a broker with those that were logged last."""

    def __init__(self, log: StructuredLog) -> None:
        self._log = log
        self._logged: Mapping[PubendId, str] = {}

    def review(self, corruptions: Mapping[PubendId, str]) -> None:
        """Log what has changed; each corrupt log has its reason."""
        for pubend, why in corruptions.items():
            if self._logged.get(pubend) != why:
                self._log.error("log is corrupt, the stream stalls", pubend=pubend, reason=why)
        for pubend in self._logged.keys() - corruptions.keys():
            self._log.info("corruption is released from the log", pubend=pubend)
        self._logged = corruptions
