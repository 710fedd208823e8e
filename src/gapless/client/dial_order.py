"""Which addresses a link dials next, and how long it waits for the broker that answered last."""

from __future__ import annotations

from gapless.core.address import Address

__all__ = ["DialOrder"]


class DialOrder:
    """The addresses of a link, ordered by what is known of them.

    For ``failover_after_s`` seconds after a loss only the address that answered last is tried: its
    broker may return, and it has the durable subscriptions of the client. Times are those of the
    event loop.
    """

    def __init__(
        self, addresses: tuple[Address, ...], address: Address | None, failover_after_s: float
    ) -> None:
        self.address = address
        """The address of the broker that answered last."""
        self._addresses = addresses
        self._failover_after_s = failover_after_s
        self._lost_at = 0.0
        self._silent: Address | None = None
        """The address of a broker that stopped sending, if that was the last failure."""

    @property
    def has_one_address(self) -> bool:
        """Whether there is only one address."""
        return len(self._addresses) == 1

    def answered(self, address: Address) -> None:
        """A broker has accepted a connection."""
        self.address = address

    def failed(self, address: Address, *, silent: bool) -> None:
        """A connection has ended; ``silent`` means that the broker had stopped sending."""
        self._silent = address if silent else None

    def lost(self, now: float) -> None:
        """The link has lost its connection."""
        self._lost_at = now

    def candidates(self, now: float) -> list[Address]:
        """Return the address that answered last, then the others unless failover must still wait.

        An address whose broker stopped sending comes last. A dead process refuses at once. A
        process that hangs or is cut off costs a whole handshake timeout, in which another broker
        would answer.
        """
        if self.address is not None and now - self._lost_at < self._failover_after_s:
            return [self.address]
        known = self._addresses if self.address is None else (self.address, *self._addresses)
        return sorted(dict.fromkeys(known), key=lambda address: address == self._silent)

    def shortened(self, wait_s: float, now: float) -> float:
        """Return a wait that ends at the latest when other addresses may be tried."""
        left_s = self._lost_at + self._failover_after_s - now
        return min(wait_s, left_s) if left_s > 0 else wait_s
