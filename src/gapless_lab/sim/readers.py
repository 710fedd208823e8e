"""Simulated readers of logs: they read a range by a filter, part by part to its end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gapless.messages.clients import Refused
from gapless.messages.reading import ReadLog, ReadPart
from gapless.messages.streams import Publication, ReadForm
from gapless.packed.pick import unpack, unpack_ticks
from gapless_lab.sim.clients import SimulatedClient
from gapless_lab.sim.oracle import PublishedStream

if TYPE_CHECKING:
    from gapless_lab.sim.oracle import Oracle
    from gapless_lab.sim.world import SimulatedHost, World

__all__ = ["SimulatedReader"]


class SimulatedReader(SimulatedClient):
    """Reads one range of one stream, from any broker."""

    def __init__(
        self,
        world: World,
        oracle: Oracle,
        name: str,
        host: SimulatedHost,
        *,
        stream: PublishedStream,
        filter_text: str,
        low: int,
        high: int,
        bytes_max: int = 0,
        form: ReadForm = ReadForm.EVENTS,
    ) -> None:
        super().__init__(world, oracle, name, host)
        self.stream = stream
        self.filter = filter_text
        self.low = low
        self.high = high
        self.bytes_max = bytes_max
        self.form = form
        self.done = False
        self.read = 0
        self._request = 0

    def connected(self) -> None:
        """Continue after the last part."""
        self._continue_reading()

    def _continue_reading(self) -> None:
        self._request = self.next_request()
        pubend, bytes_max, form = self.stream.pubend, self.bytes_max, self.form
        request = ReadLog(self._request, pubend, self.filter, self.low, self.high, bytes_max, form)
        self.send_request(request)

    def take(self, notice: Any) -> None:
        """Check a part and request the next."""
        if isinstance(notice, Refused):
            self._finish()  # the pubend may be unknown or unreachable here
        elif isinstance(notice, ReadPart) and notice.request == self._request:
            self._check(notice)
            self.low = max(self.low, notice.done + 1)
            self.high = min(self.high, notice.top)  # events appended meanwhile are not read
            if self.low > self.high:
                self._finish()
            else:
                self._continue_reading()

    def _check(self, part: ReadPart) -> None:
        """Check that a part contains exactly the matching events, from the released tick to its
        end.
        """
        stream, world = self.stream, self.world
        name = f"{self.name}: {stream.pubend} [{self.low}, {part.done}] by {self.filter}"
        if part.released > stream.released:
            world.violate("dishonest gap", f"{name}: {part.released} is not released")
        low, high = max(self.low - 1, part.released), min(self.high, part.done)
        matches = self.oracle.filter(self.filter).matches
        wanted = tuple(
            publication
            for publication in stream.publications[stream.after(low) : stream.after(high)]
            if matches(publication.attributes)
        )
        expected, found = self._expected(wanted), self._found(part)
        if found != expected:
            missing = len(expected) > len(found)
            world.violate(
                "lost" if missing else "spurious",
                f"{name}: {found} instead of {expected}",
            )
        self.read += len(found)
        if high >= self.low:
            # a reply that read ticks as silent is final (I1)
            stream.promised = max(stream.promised, high)

    def _expected(self, wanted: tuple[Publication, ...]) -> tuple[Any, ...]:
        """Return the expected content in the requested form."""
        is_counted = self.form is ReadForm.TICKS
        return tuple(each.tick for each in wanted) if is_counted else wanted

    def _found(self, part: ReadPart) -> tuple[Any, ...]:
        """Return the content of a part, from the field that its form uses."""
        if self.form is ReadForm.EVENTS:
            return (*part.publications, *part.rows)
        if self.form is ReadForm.ROWS:
            return (*part.publications, *unpack(part.rows))
        return (*(each.tick for each in part.publications), *unpack_ticks(part.rows))

    def _finish(self) -> None:
        self.done = True
        self.leave()

    def unfinished(self) -> list[str]:
        """Return a line if the read is not complete."""
        return [] if self.done else [f"{self.name}: has not read {self.stream.pubend}"]
