"""Frames come out as they went in, whatever pieces the network makes of them."""

from __future__ import annotations

import sys
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapless.core.errors import ProtocolError
from gapless.wire import FRAME_BYTES_MAX, HEADER_BYTES, Splitter


def framed(*bodies: bytes) -> bytes:
    return b"".join(len(body).to_bytes(HEADER_BYTES, "big") + body for body in bodies)


@given(st.lists(st.binary(max_size=40), max_size=8), st.lists(st.integers(1, 60)))
def test_bodies_survive_any_cutting(bodies: list[bytes], cuts: list[int]) -> None:
    data, splitter, found = framed(*bodies), Splitter(), []
    while data:
        size = cuts.pop() if cuts else len(data)
        found += splitter.feed(data[:size])
        data = data[size:]
    assert found == bodies
    assert splitter.is_between_frames


def test_a_frame_cut_off_is_not_between_frames() -> None:
    splitter = Splitter()
    assert splitter.feed(framed(b"whole", b"cut off")[:-1]) == [b"whole"]
    assert not splitter.is_between_frames


def test_a_frame_above_the_limit_is_refused_before_it_is_read() -> None:
    with pytest.raises(ProtocolError, match="larger than the limit of 10"):
        Splitter(limit=10).feed((11).to_bytes(HEADER_BYTES, "big"))


def test_a_stranger_that_speaks_http_is_told_so() -> None:
    with pytest.raises(ProtocolError, match="speaking gapless"):
        Splitter().feed(b"GET / HTTP/1.1\r\n")


def test_a_frame_of_the_greatest_size_passes() -> None:
    body = bytes(FRAME_BYTES_MAX)
    assert Splitter().feed(framed(body)) == [body]


def test_a_frame_in_tiny_pieces_takes_about_as_much_memory_as_the_frame() -> None:
    splitter, body = Splitter(), bytes(range(256)) * 400
    data = framed(body)
    for place in range(0, len(data) - 3, 3):
        assert splitter.feed(data[place : place + 3]) == []
    assert sum(map(sys.getsizeof, splitter._parts)) < 2 * len(data)
    assert splitter.feed(data[place + 3 :]) == [body]


def test_a_large_frame_in_large_and_small_pieces_is_whole_again() -> None:
    splitter, body = Splitter(), bytes(range(256)) * 400
    data, found = framed(body, b"next"), []
    for low, high in pairwise([0, 5, 9_000, 9_001, 9_010, 40_000, 44_095, 102_400, len(data)]):
        found += splitter.feed(data[low:high])
    assert found == [body, b"next"]
