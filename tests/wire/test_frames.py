"""A frame reader returns the frames that were sent, however the network divides them."""

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
def test_bodies_survive_any_division_of_the_bytes(bodies: list[bytes], cuts: list[int]) -> None:
    data, frame_reader, found = framed(*bodies), FrameReader(), []
    while data:
        size = cuts.pop() if cuts else len(data)
        found += feed(frame_reader, data[:size])
        data = data[size:]
    assert found == bodies
    assert frame_reader.is_between_frames


def test_an_incomplete_frame_is_not_between_frames() -> None:
    frame_reader = FrameReader()
    assert feed(frame_reader, framed(b"whole", b"cut off")[:-1]) == [b"whole"]
    assert not frame_reader.is_between_frames


def test_a_frame_above_the_limit_is_refused_before_it_is_read() -> None:
    with pytest.raises(ProtocolError, match="larger than the limit of 10"):
        feed(FrameReader(limit=10), (11).to_bytes(HEADER_BYTES, "big"))


def test_an_http_request_is_refused_with_a_reason() -> None:
    with pytest.raises(ProtocolError, match="speak the gapless protocol"):
        feed(FrameReader(), b"GET / HTTP/1.1\r\n")


def test_a_frame_of_the_greatest_size_is_accepted() -> None:
    body = bytes(FRAME_BYTES_MAX)
    assert feed(FrameReader(), framed(body)) == [body]


def test_a_frame_in_tiny_chunks_takes_about_as_much_memory_as_the_frame() -> None:
    frame_reader, body = FrameReader(), bytes(range(256)) * 400
    data = framed(body)
    for offset in range(0, len(data) - 3, 3):
        assert feed(frame_reader, data[offset : offset + 3]) == []
        assert offset + 3 + len(frame_reader.buffer) <= len(data)
    assert feed(frame_reader, data[offset + 3 :]) == [body]


def test_a_large_frame_takes_memory_only_as_its_bytes_arrive() -> None:
    frame_reader = FrameReader()
    data = framed(bytes(FRAME_BYTES_MAX))
    received = 0
    for size in (HEADER_BYTES, 10, 1_000, 100_000, 1_000_000, 5_000_000):
        feed(frame_reader, data[received : received + size])
        received += size
        assert received + len(frame_reader.buffer) <= max(2 * received, READ_BYTES_MAX)
    assert feed(frame_reader, data[received:]) == [bytes(FRAME_BYTES_MAX)]


def test_a_large_frame_in_small_chunks_is_copied_only_a_few_times() -> None:
    frame_reader, data = FrameReader(), framed(bytes(FRAME_BYTES_MAX))
    buffers = list[object]()
    for offset in range(0, len(data) - 4_096, 4_096):
        feed(frame_reader, data[offset : offset + 4_096])
        if not buffers or frame_reader.buffer.obj is not buffers[-1]:
            buffers.append(frame_reader.buffer.obj)
    assert len(buffers) < 10


def test_a_reader_between_frames_has_no_buffer_of_its_own() -> None:
    one, other = FrameReader(), FrameReader()
    assert one.buffer.obj is other.buffer.obj
    feed(one, framed(b"whole", b"cut off")[:-1])
    assert one.buffer.obj is not other.buffer.obj
    feed(other, framed(b"from another side"))
    assert feed(one, b"f") == [b"cut off"]
    assert one.buffer.obj is other.buffer.obj


def test_threads_have_separate_buffers() -> None:
    with ThreadPoolExecutor(1) as pool:
        elsewhere = pool.submit(FrameReader).result()
    assert elsewhere.buffer.obj is not FrameReader().buffer.obj


def test_no_read_goes_beyond_a_started_frame() -> None:
    frame_reader = FrameReader()
    for size in (0, 1, 5, 300_000):
        data = framed(bytes(size))
        for received in {1, 3, 4, 5, len(data) // 2} & {*range(1, len(data))}:
            assert feed(frame_reader, data[:received]) == []
            offset, found = received, list[memoryview]()
            while not frame_reader.is_between_frames:
                count = len(frame_reader.buffer)
                frame_reader.buffer[:] = data[offset : offset + count]
                found += frame_reader.filled(count)
                offset += count
            assert [bytes(body) for body in found] == [bytes(size)]
            assert offset == len(data)


def test_a_large_frame_in_large_and_small_chunks_is_complete() -> None:
    frame_reader, body = FrameReader(), bytes(range(256)) * 400
    data, found = framed(body, b"next"), []
    for low, high in pairwise([0, 5, 9_000, 9_001, 9_010, 40_000, 44_095, 102_400, len(data)]):
        found += feed(frame_reader, data[low:high])
    assert found == [body, b"next"]
