"""Where something listens: ``host:port``, ``[::1]:port``, or a url ``gapless://host:port``."""

from __future__ import annotations

import ipaddress
from typing import Final, NamedTuple

from gapless.core.errors import AddressError, shortened

__all__ = ["PORT", "SCHEME", "ListenAddress"]

SCHEME: Final = "gapless://"

PORT: Final = 7_400
"""Where a broker listens if nobody says otherwise."""


class ListenAddress(NamedTuple):
    """A host and a port; port 0 stands for any that is free.

    >>> ListenAddress.parse("gapless://[::1]:7400"), str(ListenAddress.parse("b1.example:7400"))
    (ListenAddress(host='::1', port=7400), 'b1.example:7400')
    """

    host: str = "127.0.0.1"
    port: int = 0

    @classmethod
    def parse(cls, text: str) -> ListenAddress:
        """Read an address; the port may be left out of a url or a host."""
        rest = text.removeprefix(SCHEME).removesuffix("/")
        host, colon, port = rest.rpartition(":")
        if not colon or rest.endswith("]"):
            host, port = rest, str(PORT)
        host = host.removeprefix("[").removesuffix("]")
        if not host or "/" in host or not port.isdecimal() or int(port) > 65_535:
            raise AddressError(
                f"{shortened(text)!r} is no address: write host:port, such as 127.0.0.1:{PORT}"
            )
        return cls(host, int(port))

    @property
    def url(self) -> str:
        """The address as clients write it."""
        return f"{SCHEME}{self}"

    @property
    def is_loopback(self) -> bool:
        """Whether only this computer can reach it."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"
