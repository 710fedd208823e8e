"""Every error of gapless, split by who has to act.

::

    GaplessError
    ├── ProtocolError             what came over a connection cannot be understood
    ├── ConnectionLostError       (also a ConnectionError) no broker can be talked to
    ├── AuthenticationError       a broker wants a token, and this is none that it takes
    ├── DeadlineError             (also a TimeoutError) not in time; nothing of it was done
    ├── OutcomeUnknownError       it was sent and not answered: perhaps it was done
    ├── GapError                  a log has lost events; has .pubend, .low, .high
    ├── RefusedError              the broker says no, and why
    │   ├── WrongBrokerError      another broker has it; has .broker
    │   ├── FencedError           a newer connection has it
    │   ├── SlowConsumerError     too much waited for a subscription that is not durable
    │   └── UnavailableError      not now; try again later
    ├── StorageError              a data directory cannot be used, or a write to it failed
    │   ├── DiskFullError         no space is left; what was acknowledged is safe
    │   ├── CorruptionError       what was read is not what was written
    │   ├── DirectoryLockedError  another process uses it; has .holder
    │   └── NewerFormatError      a newer program wrote it
    └── UsageError                the caller asked for something that cannot be
        ├── ClosedError           (also a RuntimeError) it was closed before
        ├── AddressError          (also a ValueError) not an address of brokers
        ├── PositionError         (also a ValueError) not a position
        ├── FilterError           (also a ValueError)
        │   ├── FilterSyntaxError     the text is not a filter; has .position
        │   ├── FilterTypeError       (also a TypeError) not a text, value or operand of a filter
        │   └── FilterLimitError      the filter is larger than a limit allows
        ├── IndexBusyError        (also a RuntimeError) an index is used inside its own search
        └── AttributeValueError   (also a TypeError) an attribute is not a value

An error says what was wrong and what to do about it.
"""

from __future__ import annotations

from gapless.core.limits import SHOWN_QUOTE_MAX

__all__ = [
    "AddressError",
    "AttributeValueError",
    "AuthenticationError",
    "ClosedError",
    "ConnectionLostError",
    "CorruptionError",
    "DeadlineError",
    "DirectoryLockedError",
    "DiskFullError",
    "FencedError",
    "FilterError",
    "FilterLimitError",
    "FilterSyntaxError",
    "FilterTypeError",
    "GapError",
    "GaplessError",
    "IndexBusyError",
    "NewerFormatError",
    "OutcomeUnknownError",
    "PositionError",
    "ProtocolError",
    "RefusedError",
    "SlowConsumerError",
    "StorageError",
    "UnavailableError",
    "UsageError",
    "WrongBrokerError",
    "shortened",
]

_EXCERPT_COLUMNS = 72


class GaplessError(Exception):
    """The root of all errors that gapless raises on purpose."""


class ProtocolError(GaplessError):
    """What came over a connection is malformed, too large or out of place; that connection ends."""


class ConnectionLostError(GaplessError, ConnectionError):
    """No broker can be talked to, or the session ended before an answer came."""


class AuthenticationError(GaplessError):
    """A broker lets nobody in without a token, and none was given, or one that it does not take.

    Not a refusal of one request: nothing can be asked there before the token is another one.
    """


class DeadlineError(GaplessError, TimeoutError):
    """Something was not done in time, and surely nothing of it will be."""


class OutcomeUnknownError(GaplessError):
    """A request was sent and no answer came: it may have been done, or be done later.

    To publish again under another sequence may publish twice. Who must know asks the stream itself,
    by reading it back.
    """


class GapError(GaplessError):
    """The log of a pubend no longer has a range of ticks that was owed.

    What was in it for this subscription is not known. The next event comes after the gap.

    >>> raise GapError("quotes", 17, 20)
    Traceback (most recent call last):
    gapless.core.errors.GapError: the log of quotes no longer has the ticks from 17 to 20
    """

    def __init__(self, pubend: str, low: int, high: int) -> None:
        self.pubend = pubend
        self.low = low
        self.high = high
        super().__init__(pubend, low, high)

    def __str__(self) -> str:
        return f"the log of {self.pubend} no longer has the ticks from {self.low} to {self.high}"


class RefusedError(GaplessError):
    """The broker refused a request; nothing of it was done."""


class WrongBrokerError(RefusedError):
    """Another broker has what was asked for; ``broker`` names it."""

    def __init__(self, reason: str, broker: str = "") -> None:
        self.broker = broker
        super().__init__(reason)


class FencedError(RefusedError):
    """A newer connection has taken a durable subscription or the name of a publisher over."""


class SlowConsumerError(RefusedError):
    """A subscription that is not durable fell behind and did not catch up: read faster, or be durable.

    Nothing is lost while the log has it: subscribe again with ``start=events.position``.
    """


class UnavailableError(RefusedError):
    """What is asked for is not in reach, or not through yet; try again later."""


class UsageError(GaplessError):
    """The caller asked for something that cannot be; asking again will not help."""


class ClosedError(UsageError, RuntimeError):
    """Something was used after it was closed, or before it was opened."""


class AddressError(UsageError, ValueError):
    """A text does not say where brokers are."""


class PositionError(UsageError, ValueError):
    """A text or a mapping is not a position."""


class FilterError(UsageError, ValueError):
    """A filter could not be made."""


class FilterSyntaxError(FilterError):
    """The text is not a filter.

    ``position`` is the offset of the offending character, counted from zero; the message
    shows the line with a caret under it.

    >>> raise FilterSyntaxError("expected a value after '>'", "price >", 7)
    Traceback (most recent call last):
    gapless.core.errors.FilterSyntaxError: expected a value after '>' at column 8
      price >
             ^
    """

    def __init__(self, problem: str, text: str, position: int) -> None:
        self.problem = problem
        self.text = text
        self.position = position
        super().__init__(problem, text, position)

    def __str__(self) -> str:
        before = self.text[: self.position]
        row = before.count("\n")
        line_start = before.rfind("\n") + 1
        line_end = self.text.find("\n", self.position)
        line = self.text[line_start : line_end if line_end >= 0 else len(self.text)]
        column = self.position - line_start
        where = f"line {row + 1}, column {column + 1}" if row else f"column {column + 1}"
        excerpt, caret = _excerpt(line, column)
        return f"{self.problem} at {where}\n  {excerpt}\n  {' ' * caret}^"


class FilterTypeError(FilterError, TypeError):
    """A Python object was used where a filter takes a text, a value or another filter."""


class FilterLimitError(FilterError):
    """The filter is larger than a limit allows.

    ``limit`` is the limit's name in :mod:`gapless.core.limits`, ``allowed`` its value.
    """

    def __init__(self, problem: str, limit: str, allowed: int) -> None:
        self.problem = problem
        self.limit = limit
        self.allowed = allowed
        super().__init__(problem, limit, allowed)

    def __str__(self) -> str:
        return f"{self.problem} (limit {self.limit} = {self.allowed:,})"


class IndexBusyError(UsageError, RuntimeError):
    """An index was used while it was being searched: from another thread, or from a callback."""

    def __init__(self) -> None:
        super().__init__(
            "the index is being searched; it is for one thread at a time, and a search must not "
            "use it again (not even from a weak reference's callback or a key's __hash__)"
        )


class AttributeValueError(UsageError, TypeError):
    """An attribute of an event is not a bool, a 64-bit int, a float or a str."""


class StorageError(GaplessError):
    """A data directory cannot be used, or a write to it failed."""


class DiskFullError(StorageError):
    """No space is left. What was acknowledged is safe; with space again the broker can start."""


class CorruptionError(StorageError):
    """What was read is not what was written. Nothing was deleted or repaired."""


class NewerFormatError(StorageError):
    """A newer program wrote the data directory, in a format that this one does not know."""


class DirectoryLockedError(StorageError):
    """Another process uses the data directory; ``holder`` is its process id, as it wrote it."""

    def __init__(self, directory: str, holder: str) -> None:
        self.directory = directory
        self.holder = holder
        super().__init__(directory, holder)

    def __str__(self) -> str:
        by = f"process {self.holder}" if self.holder else "another process"
        return f"{self.directory} is in use by {by}: stop it, or choose another data directory"


def shortened(text: str) -> str:
    """Cut a text that a message quotes: it may come from a stranger and be as long as a book."""
    return text if len(text) <= SHOWN_QUOTE_MAX else text[:SHOWN_QUOTE_MAX] + "…"


def _excerpt(line: str, column: int) -> tuple[str, int]:
    """Cut a long line to a window around the column; keep control characters off the screen."""
    shown = "".join(character if character.isprintable() else " " for character in line)
    if len(shown) <= _EXCERPT_COLUMNS:
        return shown, column
    start = max(0, column - _EXCERPT_COLUMNS // 2)
    window = shown[start : start + _EXCERPT_COLUMNS]
    lead = "…" if start else ""
    tail = "…" if start + _EXCERPT_COLUMNS < len(shown) else ""
    return lead + window + tail, column - start + len(lead)
