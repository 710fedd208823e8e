"""Addresses of brokers: ``host:port``, ``[::1]:port``, or URLs ``gapless://host:port,host:port/``."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import ip_address
from typing import Any, Final, NamedTuple

from gapless.core.errors import AddressError, shortened, shown_value

__all__ = ["PORT", "SCHEME", "Address", "parse_addresses"]

SCHEME: Final = "gapless://"

PORT: Final = 7_400
"""The port of a broker if the address names none."""

_PORT_MAX: Final = 65_535


class Address(NamedTuple):
    """A host and a port. Port 0 stands for any free port of a listener.

    >>> Address.parse("gapless://[::1]:7400"), str(Address.parse("b1.example:7400"))
    (Address(host='::1', port=7400), 'b1.example:7400')
    """

    host: str = "127.0.0.1"
    port: int = 0

    @classmethod
    def parse(cls, text: str) -> Address:
        """Read one address of a configuration; a host or a URL without a port gets PORT."""
        rest = text.removeprefix(SCHEME).removesuffix("/")
        host, colon, port = rest.rpartition(":")
        if not colon or rest.endswith("]"):
            host, port = rest, str(PORT)
        host = host.removeprefix("[").removesuffix("]")
        if not _is_host(host) or "/" in host or not _is_port(port):
            raise AddressError(
                f"{shortened(text)!r} is not an address: write host:port, such as 127.0.0.1:{PORT}"
            )
        return cls(host, int(port))

    @property
    def url(self) -> str:
        """The address as clients write it."""
        return f"{SCHEME}{self}"

    @property
    def is_loopback(self) -> bool:
        """Whether only this computer can reach the address."""
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    @property
    def is_reachable(self) -> bool:
        """Whether another program can connect to it: it has a port and is not every interface.

        >>> [Address.parse(text).is_reachable for text in ("0.0.0.0:7400", "[::]:7400", "b1:7400")]
        [False, False, True]
        """
        try:
            return self.port > 0 and not ip_address(self.host).is_unspecified
        except ValueError:
            return self.port > 0

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def parse_addresses(servers: str | Iterable[str]) -> tuple[Address, ...]:
    """Return the addresses of a URL, or of several URLs, each address once; the first is preferred.

    >>> [*map(str, parse_addresses("gapless://b1,b2:7500,[::1]/"))]
    ['b1:7400', 'b2:7500', '[::1]:7400']
    >>> parse_addresses(["gapless://b1", "gapless://b2"])[1].host
    'b2'
    >>> parse_addresses("gapless://b1,gapless://b2")[1].host
    'b2'
    """
    try:
        urls = [servers] if isinstance(servers, str) else [*servers]
    except TypeError:
        raise AddressError(
            f"{shown_value(servers)} is not an address: write gapless://host:port"
        ) from None
    found = tuple(address for url in urls for address in _of_url(url))
    if not found:
        raise AddressError("no broker address was given: write gapless://host:port")
    return tuple(dict.fromkeys(found))


def _of_url(url: Any) -> list[Address]:
    if not isinstance(url, str) or not url.startswith(SCHEME):
        raise AddressError(f"{shown_value(url)} is not an address: write gapless://host:port")
    parts = [part.removeprefix(SCHEME).removesuffix("/") for part in url.split(",")]
    if any(character in part for part in parts for character in "/?#@"):
        raise AddressError(f"{shortened(url)!r}: nothing may follow the hosts and ports")
    return [_of_host_port(part, url) for part in parts]


def _is_host(text: str) -> bool:
    return bool(text) and text.isprintable() and " " not in text


def _is_port(text: str) -> bool:
    """Return whether a text is a port; a number of thousands of digits is not even converted."""
    is_short = len(text) <= len(str(_PORT_MAX))
    return is_short and text.isascii() and text.isdecimal() and int(text) <= _PORT_MAX


def _of_host_port(text: str, url: str) -> Address:
    if text.startswith("["):
        host, closed, rest = text[1:].partition("]")
        if not closed or (rest and not rest.startswith(":")):
            raise AddressError(f"{shortened(url)!r}: write an IPv6 address as [::1]:{PORT}")
        port = rest[1:]
        has_port = bool(rest)
    else:
        host, colon, port = text.partition(":")
        has_port = bool(colon)
    if not _is_host(host):
        raise AddressError(f"{shortened(url)!r}: {shortened(text)!r} has no host")
    if not has_port:
        return Address(host, PORT)
    if not (_is_port(port) and int(port)):
        raise AddressError(f"{shortened(url)!r}: {shortened(port)!r} is not a port")
    return Address(host, int(port))
