"""``gapless pub``: JSON lines become events."""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import os
import stat
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from io import FileIO
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

import msgspec
import typer

from gapless.cli.options import URL_DEFAULT, AsJson, Deadline, TokenFile, Url, Wait, settle
from gapless.cli.output import console, counted, print_json, print_note

if TYPE_CHECKING:
    from gapless.client import Position, Publisher, Session
    from gapless.content.filter import Filter
    from gapless.core.errors import UsageError

__all__ = ["pub", "read_line"]

CHUNK_BYTES: Final = 262_144
"""The size of a read; its events are published together."""

CHUNKS_AHEAD: Final = 4
"""So many chunks may wait to be published."""

EXAMPLE: Final = '{"attributes": {"symbol": "IBM", "price": 90.5}, "payload": "text"}'
EXAMPLE_PLAIN: Final = '{"symbol": "IBM", "price": 90.5}'


class EventLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An event as a line. The fields that ``gapless sub`` adds are accepted and ignored."""

    attributes: dict[str, Any] = {}
    payload: str = ""
    payload_base64: str = ""
    pubend: str = ""
    tick: int = 0
    publisher: str = ""
    sequence: int = 0


_NumberedEvent: TypeAlias = tuple[int, tuple[dict[str, Any], bytes]]
"""An event and the number of its line."""

_LINES: Final = msgspec.json.Decoder(EventLine)
_ATTRIBUTES: Final = msgspec.json.Decoder(dict[str, Any])
_RAW: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])

EVENT_KEYS: Final = frozenset({"attributes", "payload", "payload_base64"})
"""A line with one of these keys is an event. The keys of any other line are its attributes."""


def read_line(line: bytes, number: int) -> tuple[dict[str, Any], bytes]:
    """Return the event of a line; a UsageError names the line and the fault.

    >>> read_line(b'{"attributes": {"a": 1}, "payload": "x"}', 1)
    ({'a': 1}, b'x')
    >>> read_line(b'{"a": 1}', 1)
    ({'a': 1}, b'')

    As in Python, an attribute without a value is missing: ``{"a": null}``.
    """
    from gapless.content.values import check_attributes
    from gapless.core.errors import UsageError

    try:
        found = _event_line(line)
        payload = found.payload.encode()
        if found.payload_base64:
            payload = base64.b64decode(found.payload_base64, validate=True)
        check_attributes(found.attributes)
    except UnicodeDecodeError:
        problem = "it is not UTF-8"
    except binascii.Error as error:
        problem = f"payload_base64 is not base64: {error}"
    except (msgspec.MsgspecError, UsageError) as error:
        problem = str(error)
    else:
        return found.attributes, payload
    raise UsageError(
        f"line {number:,} is no event: {problem}\n  a line looks like this: {EXAMPLE}\n"
        f"  or, without a payload, like this: {EXAMPLE_PLAIN}"
    )


def _event_line(line: bytes) -> EventLine:
    """Decode a line in one of the two forms."""
    return EventLine(_ATTRIBUTES.decode(line)) if _is_plain(line) else _LINES.decode(line)


def _is_plain(line: bytes) -> bool:
    """Return whether a line is an object whose keys are attributes."""
    try:
        return EVENT_KEYS.isdisjoint(_RAW.decode(line))
    except msgspec.ValidationError:
        return False


class _Reader:
    """Reads chunks of lines in a daemon thread."""

    def __init__(self, source: FileIO) -> None:
        self._source = source
        self._loop = asyncio.get_running_loop()
        self._chunks: asyncio.Queue[list[bytes] | BaseException | None] = asyncio.Queue()
        self._capacity = threading.Semaphore(CHUNKS_AHEAD)
        threading.Thread(target=self._read, name="reader", daemon=True).start()

    def _read(self) -> None:
        """Pass on lines as they come, so that a slow source does not delay them."""
        rest = b""
        try:
            # a terminal or a pipe returns what it has, a file fills the buffer
            while data := self._source.read(CHUNK_BYTES):
                lines = (rest + data).split(b"\n")
                rest = lines.pop()
                if lines:
                    self._hand_over(lines)
            if rest:
                self._hand_over([rest])
            self._hand_over(None)
        except OSError as error:
            self._hand_over(error)

    def _hand_over(self, chunk: list[bytes] | BaseException | None) -> None:
        self._capacity.acquire()
        try:
            self._loop.call_soon_threadsafe(self._chunks.put_nowait, chunk)
        except RuntimeError:
            return  # the loop is closed

    async def chunks(self) -> AsyncIterator[list[bytes]]:
        """Yield the lines that have come."""
        while True:
            chunk = await self._chunks.get()
            self._capacity.release()
            if isinstance(chunk, BaseException):
                raise chunk
            if chunk is None:
                return
            yield chunk


class _Count:
    """Counts the lines that were read and the events that were published."""

    def __init__(self) -> None:
        self.lines = 0
        self.events = 0
        self.position: Position | None = None

    def next_line(self) -> int:
        """Count a line that was read; return its number."""
        self.lines += 1
        return self.lines

    def add(self, events: int, position: Position) -> None:
        """Count events that were published up to a position."""
        self.position = position if self.position is None else self.position | position
        self.events += events

    def add_some(self, events: int) -> None:
        """Count events that were published before an error."""
        self.events += events

    def text(self) -> str:
        """Return the summary for the user."""
        if self.position is None and not self.events:
            return "nothing was published"
        position = f", up to {self.position}" if self.position else ""
        return f"{counted(self.events, 'event')} published{position}"


def pub(
    context: typer.Context,
    source: Annotated[
        str, typer.Argument(metavar="[FILE|-]", help="JSON lines; - is the standard input.")
    ] = "-",
    *,
    pubend: Annotated[str, typer.Option("--pubend", "-p", help="The stream to publish to.")],
    publisher: Annotated[
        str | None,
        typer.Option(help="The publisher's name; by default a unique one."),
    ] = None,
    advertise: Annotated[
        str,
        typer.Option(metavar="FILTER", help="A filter that all events of a new pubend match."),
    ] = "TRUE",
    best_effort: Annotated[
        bool, typer.Option("--best-effort", help="Without log and acknowledgements.")
    ] = False,
    rate: Annotated[
        float | None, typer.Option(min=0.001, help="At most so many events a second.")
    ] = None,
    url: Url = URL_DEFAULT,
    token_file: TokenFile = None,
    deadline: Deadline = 30.0,
    wait: Wait = 0.0,
    as_json: AsJson = False,
) -> None:
    r"""Publish JSON lines.

    A line is an object of attributes, or has "attributes" and optionally a "payload" (text) or a
    "payload_base64". A line with one of these three keys has the second form. The lines before an
    invalid one are published, and the error has their number.
    """
    from gapless.cli.broker_calls import call_broker
    from gapless.content.filter import Filter

    settle(context, as_json=as_json)
    count = _Count()
    options: dict[str, Any] = {"advertisement": advertise, "guaranteed": not best_effort}
    if publisher is not None:
        options["name"] = publisher

    async def work(session: Session) -> str:
        async with session.publisher(pubend, **options) as made:
            await _publish_all(made, source, count, rate, Filter(advertise))
            return made.name

    try:
        name = call_broker(url, work, deadline_s=deadline, token_file=token_file, wait_s=wait)
    except BaseException:
        print_note(count.text())
        raise
    if as_json:
        position = dict(count.position or {})
        print_json({"published": count.events, "position": position, "publisher": name})
    else:
        console().print(count.text())


async def _publish_all(
    publisher: Publisher, source: str, count: _Count, rate: float | None, advertised: Filter
) -> None:
    with _opened(source) as opened, _shown(opened) as show:
        async for lines in _Reader(opened).chunks():
            events, wrong = _read(lines, count, advertised)
            step = len(events) if rate is None else max(1, int(rate / 10))
            for part in _parts(events, step):
                await _publish(publisher, part, count)
                if rate is not None:
                    await asyncio.sleep(len(part) / rate)
            show(sum(map(len, lines)) + len(lines))
            if wrong is not None:
                raise wrong


@contextlib.contextmanager
def _shown(opened: FileIO) -> Iterator[Callable[[int], None]]:
    """Show the progress through a file on a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn

    screen = Console(stderr=True)
    is_file = stat.S_ISREG(os.fstat(opened.fileno()).st_mode)
    columns = (BarColumn(), DownloadColumn(), TimeRemainingColumn())
    hidden = not (is_file and screen.is_terminal)
    with Progress(*columns, console=screen, transient=True, disable=hidden) as bar:
        task = bar.add_task("", total=os.fstat(opened.fileno()).st_size or None)
        yield lambda done: bar.update(task, advance=done)


def _opened(source: str) -> FileIO:
    """Open the source unbuffered: a buffer could not be closed while the reader waits in it."""
    from gapless.core.errors import UsageError

    if source == "-":
        return FileIO(sys.stdin.fileno(), closefd=False)
    try:
        return FileIO(source)
    except OSError as error:
        raise UsageError(f"{source} cannot be read: {error.strerror}") from None


def _read(
    lines: list[bytes], count: _Count, advertised: Filter
) -> tuple[list[_NumberedEvent], UsageError | None]:
    """Return the events of lines up to an invalid one, and its error."""
    from gapless.core.errors import UsageError

    events: list[_NumberedEvent] = []
    for line in lines:
        number = count.next_line()
        if not line.strip():
            continue
        try:
            event = read_line(line, number)
        except UsageError as error:
            return events, error
        if not advertised.matches(event[0]):
            return events, UsageError(f"line {number:,} does not match --advertise")
        events.append((number, event))
    return events, None


async def _publish(publisher: Publisher, part: list[_NumberedEvent], count: _Count) -> None:
    """Publish events; an error has the line of its event, and what was published is counted."""
    from gapless.core.errors import GaplessError, reworded

    try:
        position = await publisher.publish_many([event for _, event in part])
    except GaplessError as error:
        count.add_some(error.published or 0)
        number = error.event_number
        if number is None or number >= len(part):
            raise
        raise reworded(error, f"{error} (event {number} is line {part[number][0]:,})") from None
    count.add(len(part), position)


def _parts(events: list[Any], step: int) -> Iterable[list[Any]]:
    return (events[first : first + step] for first in range(0, len(events), max(1, step)))
