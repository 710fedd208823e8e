"""Where brokers are: ``gapless://host:port,host:port/``."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import ip_address
from typing import Final, NamedTuple

from gapless.core.errors import AddressError

__all__ = ["DEFAULT_PORT", "BrokerAddress", "parse_addresses"]

DEFAULT_PORT: Final = 7400
_SCHEME: Final = "gapless://"
_PORT_MAX: Final = 65_535


class BrokerAddress(NamedTuple):
    """Where one broker listens."""

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """Whether what is sent there stays on this computer."""
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def parse_addresses(servers: str | Iterable[str]) -> tuple[BrokerAddress, ...]:
    """Return the addresses that a URL, or each of several URLs, names; the first is preferred.

    >>> [*map(str, parse_addresses("gapless://b1,b2:7500,[::1]/"))]
    ['b1:7400', 'b2:7500', '[::1]:7400']
    >>> parse_addresses(["gapless://b1", "gapless://b2"])[1].host
    'b2'
    >>> parse_addresses("gapless://b1,gapless://b2")[1].host
    'b2'
    """
    urls = [servers] if isinstance(servers, str) else [*servers]
    found = tuple(address for url in urls for address in _of_url(url))
    if not found:
        raise AddressError("no address of a broker was given")
    return tuple(dict.fromkeys(found))


def _of_url(url: str) -> list[BrokerAddress]:
    if not str(url).startswith(_SCHEME):
        raise AddressError(f"{url!r} is no address; write gapless://host:port")
    parts = [part.removeprefix(_SCHEME).removesuffix("/") for part in url.split(",")]
    if any(character in part for part in parts for character in "/?#@"):
        raise AddressError(f"{url!r}: after the hosts and ports nothing may follow")
    return [_of_host_port(part, url) for part in parts]


def _of_host_port(text: str, url: str) -> BrokerAddress:
    if text.startswith("["):
        host, closed, rest = text[1:].partition("]")
        if not closed or (rest and not rest.startswith(":")):
            raise AddressError(f"{url!r}: write an IPv6 address as [::1]:{DEFAULT_PORT}")
        port = rest[1:]
        has_port = bool(rest)
    else:
        host, colon, port = text.partition(":")
        has_port = bool(colon)
    if not host or host.strip() != host:
        raise AddressError(f"{url!r}: {text!r} has no host")
    if not has_port:
        return BrokerAddress(host, DEFAULT_PORT)
    if not (port.isascii() and port.isdigit() and 0 < int(port) <= _PORT_MAX):
        raise AddressError(f"{url!r}: {port!r} is no port")
    return BrokerAddress(host, int(port))
