"""GD's nack repetition threshold: how long to wait for a reply before a nack is repeated.

It is estimated like TCP's retransmission timeout (GD 3.2): smoothed round trip plus four times its
smoothed deviation, doubled while no reply arrives. A range that was requested twice gives no
sample, since it is not known which nack was answered. So a doubling remains until a range requested
once is answered. Otherwise a threshold below the true round trip would never be corrected.
"""

from __future__ import annotations

from typing import Final

__all__ = ["NackRepetitionThreshold"]

INITIAL: Final = 4
"""The threshold before the first sample, as a multiple of the least value."""


class NackRepetitionThreshold:
    """The estimated threshold, in microseconds, between a least and a greatest value.

    >>> threshold = NackRepetitionThreshold(50_000, 10_000_000)
    >>> threshold.sample(100_000)
    >>> threshold.us
    300000
    >>> threshold.back_off()
    >>> threshold.us
    600000
    """

    __slots__ = ("_deviation", "_least", "_most", "_shift", "_smoothed")

    def __init__(self, least_us: int, most_us: int) -> None:
        assert 0 < least_us <= most_us, f"{least_us} and {most_us} are no bounds"
        self._least = least_us
        self._most = most_us
        self._smoothed: int | None = None
        self._deviation = 0
        self._shift = 0

    @property
    def us(self) -> int:
        """The current threshold."""
        return min(self._most, self._estimate() << self._shift)

    def sample(self, round_trip_us: int) -> None:
        """Add the round trip of a range that was requested once, and end the doubling."""
        self._shift = 0
        if self._smoothed is None:
            self._smoothed = round_trip_us
            self._deviation = round_trip_us // 2
        else:
            error = round_trip_us - self._smoothed
            self._deviation += (abs(error) - self._deviation) // 4
            self._smoothed += error // 8

    def back_off(self) -> None:
        """Double the threshold: no reply arrived within it."""
        if self.us < self._most:
            self._shift += 1

    def relax(self) -> None:
        """End the doubling: requests go to another feeder now."""
        self._shift = 0

    def _estimate(self) -> int:
        """Return the threshold without doubling."""
        if self._smoothed is None:
            return min(self._most, INITIAL * self._least)
        return max(self._least, self._smoothed + 4 * self._deviation)
