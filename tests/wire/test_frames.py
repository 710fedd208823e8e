"""Frames come out as they went in, whatever pieces the network makes of them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapless.core.errors import ProtocolError
from gapless.core.limits import READ_BYTES_MAX
from gapless.wire import FRAME_BYTES_MAX, HEADER_BYTES, FrameReader
from tests.wire.feeding import feed


def framed(*bodies: bytes) -> bytes:
    return b"".join(len(body).to_bytes(HEADER_BYTES, "big") + body for body in bodies)


@given(st.lists(st.binary(max_size=40), max_size=8), st.lists(st.integers(1, 60)))
def test_bodies_survive_any_cutting(bodies: list[bytes], cuts: list[int]) -> None:
    data, intake, found = framed(*bodies), FrameReader(), []
    while data:
        size = cuts.pop() if cuts else len(data)
        found += feed(intake, data[:size])
        data = data[size:]
    assert found == bodies
    assert intake.is_between_frames


def test_a_frame_cut_off_is_not_between_frames() -> None:
    intake = FrameReader()
    assert feed(intake, framed(b"whole", b"cut off")[:-1]) == [b"whole"]
    assert not intake.is_between_frames


def test_a_frame_above_the_limit_is_refused_before_it_is_read() -> None:
    with pytest.raises(ProtocolError, match="larger than the limit of 10"):
        feed(FrameReader(limit=10), (11).to_bytes(HEADER_BYTES, "big"))


def test_a_peer_that_speaks_http_is_told_so() -> None:
    with pytest.raises(ProtocolError, match="speaking gapless"):
        feed(FrameReader(), b"GET / HTTP/1.1\r\n")


def test_a_frame_of_the_greatest_size_passes() -> None:
    body = bytes(FRAME_BYTES_MAX)
    assert feed(FrameReader(), framed(body)) == [body]


def test_a_frame_in_tiny_pieces_takes_about_as_much_memory_as_the_frame() -> None:
    intake, body = FrameReader(), bytes(range(256)) * 400
    data = framed(body)
    for place in range(0, len(data) - 3, 3):
        assert feed(intake, data[place : place + 3]) == []
        assert place + 3 + len(intake.buffer) <= len(data)
    assert feed(intake, data[place + 3 :]) == [body]


def test_a_large_frame_that_was_only_announced_takes_little_memory() -> None:
    intake = FrameReader()
    data = framed(bytes(FRAME_BYTES_MAX))
    come = 0
    for size in (HEADER_BYTES, 10, 1_000, 100_000, 1_000_000, 5_000_000):
        feed(intake, data[come : come + size])
        come += size
        assert come + len(intake.buffer) <= max(2 * come, READ_BYTES_MAX)
    assert feed(intake, data[come:]) == [bytes(FRAME_BYTES_MAX)]


def test_a_large_frame_in_small_pieces_is_moved_only_a_few_times() -> None:
    intake, data = FrameReader(), framed(bytes(FRAME_BYTES_MAX))
    buffers = list[object]()
    for place in range(0, len(data) - 4_096, 4_096):
        feed(intake, data[place : place + 4_096])
        if not buffers or intake.buffer.obj is not buffers[-1]:
            buffers.append(intake.buffer.obj)
    assert len(buffers) < 10


def test_who_is_between_frames_has_no_buffer_of_its_own() -> None:
    one, other = FrameReader(), FrameReader()
    assert one.buffer.obj is other.buffer.obj
    feed(one, framed(b"whole", b"cut off")[:-1])
    assert one.buffer.obj is not other.buffer.obj
    feed(other, framed(b"from another side"))
    assert feed(one, b"f") == [b"cut off"]
    assert one.buffer.obj is other.buffer.obj


def test_threads_do_not_read_into_the_same_buffer() -> None:
    with ThreadPoolExecutor(1) as pool:
        elsewhere = pool.submit(FrameReader).result()
    assert elsewhere.buffer.obj is not FrameReader().buffer.obj


def test_no_read_goes_beyond_a_frame_that_was_begun() -> None:
    intake = FrameReader()
    for size in (0, 1, 5, 300_000):
        data = framed(bytes(size))
        for come in {1, 3, 4, 5, len(data) // 2} & {*range(1, len(data))}:
            assert feed(intake, data[:come]) == []
            place, found = come, list[memoryview]()
            while not intake.is_between_frames:
                count = len(intake.buffer)
                intake.buffer[:] = data[place : place + count]
                found += intake.filled(count)
                place += count
            assert [bytes(body) for body in found] == [bytes(size)]
            assert place == len(data)


def test_a_large_frame_in_large_and_small_pieces_is_whole_again() -> None:
    intake, body = FrameReader(), bytes(range(256)) * 400
    data, found = framed(body, b"next"), []
    for low, high in pairwise([0, 5, 9_000, 9_001, 9_010, 40_000, 44_095, 102_400, len(data)]):
        found += feed(intake, data[low:high])
    assert found == [body, b"next"]
