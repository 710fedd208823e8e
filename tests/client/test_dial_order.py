"""Which addresses a link dials, and in which order."""

from __future__ import annotations

from gapless.client.dial_order import DialOrder
from gapless.core.address import Address

B1, B2, B3 = (Address(name, 7_400) for name in ("b1", "b2", "b3"))


def test_addresses_are_dialled_in_the_given_order() -> None:
    assert DialOrder((B1, B2), None, 0.0).candidates(0.0) == [B1, B2]


def test_the_address_that_answered_last_is_dialled_first() -> None:
    order = DialOrder((B1, B2, B3), None, 0.0)
    order.answered(B3)
    assert order.candidates(1.0) == [B3, B1, B2]


def test_only_the_address_that_answered_last_is_dialled_until_the_failover() -> None:
    order = DialOrder((B1, B2), B2, 5.0)
    order.lost(10.0)
    assert order.candidates(14.9) == [B2]
    assert order.candidates(15.0) == [B2, B1]


def test_an_address_whose_broker_became_silent_is_dialled_last() -> None:
    order = DialOrder((B1, B2), B1, 0.0)
    order.failed(B1, silent=True)
    assert order.candidates(1.0) == [B2, B1]
    order.failed(B2, silent=False)
    assert order.candidates(1.0) == [B1, B2]


def test_a_wait_ends_when_other_addresses_may_be_dialled() -> None:
    order = DialOrder((B1, B2), B1, 5.0)
    order.lost(10.0)
    assert order.shortened(60.0, 12.0) == 3.0
    assert order.shortened(1.0, 12.0) == 1.0
    assert order.shortened(60.0, 15.0) == 60.0
