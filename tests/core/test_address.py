"""Addresses in the form that operators write."""

from __future__ import annotations

import pytest

from gapless.core.address import Address, parse_addresses
from gapless.errors import AddressError


def test_a_url_names_hosts_and_ports() -> None:
    assert parse_addresses("gapless://h1:1,h2:2/") == (
        Address("h1", 1),
        Address("h2", 2),
    )


def test_the_default_port_is_7400() -> None:
    assert parse_addresses("gapless://h1") == (Address("h1", 7400),)


def test_several_urls_are_equal_to_one_and_repetitions_count_once() -> None:
    found = parse_addresses(["gapless://h1:1,h2:2", "gapless://h2:2"])
    assert found == parse_addresses("gapless://h1:1,h2:2")


def test_an_ipv6_address_is_in_brackets() -> None:
    assert parse_addresses("gapless://[::1]:9") == (Address("::1", 9),)
    assert str(Address("::1", 9)) == "[::1]:9"


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        "h1:7400",
        "http://h1",
        "gapless://",
        "gapless://h1,",
        "gapless://h1:",
        "gapless://h1:x",
        "gapless://h1:0",
        "gapless://h1:65536",
        "gapless://h1:-1",
        "gapless://h1/path",
        "gapless://user@h1",
        "gapless://[::1",
        "gapless://[::1]x",
        "gapless://h1:" + "9" * 5_000,
        "gapless://h\0",
        "gapless://[h 1]",
        "gapless:// h1",
        [],
        [""],
    ],
)
def test_an_invalid_address_is_refused(wrong: str | list[str]) -> None:
    with pytest.raises(AddressError):
        parse_addresses(wrong)
