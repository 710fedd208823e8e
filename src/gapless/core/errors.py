"""All errors of gapless, by who has to act.

::

    GaplessError
    ├── ProtocolError             a connection received something malformed
    ├── ConnectionLostError       (also a ConnectionError) no broker can be reached
    ├── AuthenticationError       the broker does not accept the token
    ├── DeadlineError             (also a TimeoutError) not done in time, and will not be
    ├── OutcomeUnknownError       a request was not answered; it may have been done
    ├── GapError                  a log no longer has ticks; has .pubend, .low, .high
    ├── RefusedError              the broker refused a request, with a reason
    │   ├── WrongBrokerError      another broker has it; has .broker
    │   ├── FencedError           a newer connection has it
    │   ├── PubendClosedError     the pubend is closed and accepts nothing
    │   ├── NotAuthorisedError    it needs an operator token
    │   ├── OperationRefusedError an operation on the tree is not possible; has .why
    │   ├── SlowConsumerError     a subscription that is not durable fell behind
    │   └── UnavailableError      not possible now; try again later
    │       └── HostUnknownError  a broker that may host a subscription is silent; has .silent
    ├── StorageError              a data directory cannot be used, or a write to it failed
    │   ├── DiskFullError         no space is left; acknowledged events are safe
    │   ├── CorruptionError       stored bytes fail their checksum
    │   ├── DirectoryLockedError  another process uses it; has .holder
    │   └── NewerFormatError      a newer program wrote it
    └── UsageError                the call is invalid
        ├── ClosedError           (also a RuntimeError) the object is closed
        ├── AddressError          (also a ValueError) not an address of brokers
        ├── PositionError         (also a ValueError) not a position
        ├── FilterError           (also a ValueError)
        │   ├── FilterSyntaxError     the text is not a filter; has .position
        │   ├── FilterTypeError       (also a TypeError) not a text, value or operand of a filter
        │   └── FilterLimitError      the filter is larger than a limit allows
        ├── IndexBusyError        (also a RuntimeError) an index is used inside its own search
        └── AttributeValueError   (also a TypeError) an attribute is not a value

An error text names the cause, then the remedy.

There is one warning, ``FilterWarning``: a filter is valid and probably not what was meant.
"""

from __future__ import annotations

from typing import Self, TypeVar

from gapless.core.limits import SHOWN_QUOTE_MAX
from gapless.core.printable import printable, printable_line

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
    "FilterWarning",
    "GapError",
    "GaplessError",
    "HostUnknownError",
    "IndexBusyError",
    "NewerFormatError",
    "NotAuthorisedError",
    "OperationRefusedError",
    "OutcomeUnknownError",
    "PositionError",
    "ProtocolError",
    "PubendClosedError",
    "RefusedError",
    "SlowConsumerError",
    "StorageError",
    "UnavailableError",
    "UsageError",
    "WrongBrokerError",
    "reworded",
    "shortened",
    "shown_value",
]

_Error = TypeVar("_Error", bound=Exception)
_EXCERPT_COLUMNS = 72


class GaplessError(Exception):
    """The base class of all errors of gapless.

    The text of an error may contain names that other programs chose, and a traceback prints it.
    """

    event_number: int | None = None
    """Of ``publish_many``: the number of the first event that the error is about, from 0."""
    published: int | None = None
    """Of ``publish_many``: how many events of the call are published."""

    def __str__(self) -> str:
        return printable(super().__str__())

    def about_events(self, number: int | None, published: int) -> Self:
        """Set the number of the first event that the error is about, and how many are published."""
        self.event_number, self.published = number, published
        return self


class ProtocolError(GaplessError):
    """A connection received something malformed, too large or unexpected; the connection ends."""


class ConnectionLostError(GaplessError, ConnectionError):
    """No broker can be reached, or the session ended before a reply came."""


class AuthenticationError(GaplessError):
    """A broker requires a token, and the client has none or one that the broker does not accept.

    The broker refuses the connection, not one request. The client needs another token.
    """


class DeadlineError(GaplessError, TimeoutError):
    """Something was not done in time, and no part of it will be."""


class OutcomeUnknownError(GaplessError):
    """A request was sent and not answered. It may have been done, or be done later.

    To publish again under another sequence may publish twice. A program that must know the outcome
    reads the stream.
    """


class GapError(GaplessError):
    """The log of a pubend no longer has a range of ticks that a subscription needed.

    Whether events in it matched is not known. The next event comes after the gap.

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
        pubend = printable_line(str(self.pubend))
        return f"the log of {pubend} no longer has the ticks from {self.low} to {self.high}"


class RefusedError(GaplessError):
    """The broker refused a request, which had no effect."""


class WrongBrokerError(RefusedError):
    """Another broker has the requested object; ``broker`` names it."""

    def __init__(self, reason: str, broker: str = "", addresses: tuple[str, ...] = ()) -> None:
        self.broker = broker
        self.addresses = addresses
        """The addresses of the broker, if they are known."""
        super().__init__(reason)


class FencedError(RefusedError):
    """A newer connection has the durable subscription or the publisher name."""


class PubendClosedError(RefusedError):
    """The pubend is closed: it accepts no event, no publisher and no batch any more.

    Publish to another pubend. Once nothing is left of it, its plain name opens a new pubend with a
    number.
    """


class NotAuthorisedError(RefusedError):
    """The request needs an operator token, and the client has another one."""


class OperationRefusedError(RefusedError):
    """An operation on the tree is not possible, and the tree is as before.

    ``why`` is the kind of the reason in words: stale, bound, not empty, name taken, unanswered, …
    """

    def __init__(self, reason: str, why: str = "") -> None:
        self.why = why
        super().__init__(reason)


class SlowConsumerError(RefusedError):
    """A subscription that is not durable fell behind and did not catch up.

    Read faster, or use a durable subscription. No event is lost while the log has it: subscribe
    again with ``start=events.position``.
    """


class UnavailableError(RefusedError):
    """Something is unreachable or not complete yet. Try again later."""


class HostUnknownError(UnavailableError):
    """A broker that may host the durable subscription did not answer; ``silent`` names such brokers.

    The library repeats the request until its deadline.
    """

    def __init__(self, reason: str, silent: tuple[str, ...] = ()) -> None:
        self.silent = silent
        super().__init__(reason)


class UsageError(GaplessError):
    """The call is invalid; to repeat it will not help."""


class ClosedError(UsageError, RuntimeError):
    """An object was used after it was closed, or before it was opened."""


class AddressError(UsageError, ValueError):
    """A text is not an address of brokers."""


class PositionError(UsageError, ValueError):
    """A text or a mapping is not a position."""


class FilterError(UsageError, ValueError):
    """A filter is invalid."""


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


class FilterWarning(UserWarning):
    """A filter compares an attribute with a name that was probably meant as a string."""


class IndexBusyError(UsageError, RuntimeError):
    """An index was used during a search of it: from another thread, or from a callback."""

    def __init__(self) -> None:
        super().__init__(
            "the index is in use by a search; use it from one thread at a time, and not within a "
            "search (also not from a weak reference's callback or a key's __hash__)"
        )


class AttributeValueError(UsageError, TypeError):
    """An attribute of an event is not a bool, a 64-bit int, a float or a str."""


class StorageError(GaplessError):
    """A data directory cannot be used, or a write to it failed."""


class DiskFullError(StorageError):
    """No space is left. Acknowledged events are safe. The broker can start when there is space."""


class CorruptionError(StorageError):
    """Stored bytes fail their checksum. Nothing was deleted or repaired."""


class NewerFormatError(StorageError):
    """A newer version of gapless wrote the data directory, in a format unknown to this one."""


class DirectoryLockedError(StorageError):
    """Another process uses the data directory; ``holder`` is the process id from the lock file."""

    def __init__(self, directory: str, holder: str) -> None:
        self.directory = directory
        self.holder = holder
        super().__init__(directory, holder)

    def __str__(self) -> str:
        by = f"process {self.holder}" if self.holder else "another process"
        return f"{self.directory} is in use by {by}: stop it, or choose another data directory"


def reworded(error: _Error, text: str) -> _Error:
    """Return an error of the same kind, whose first argument is its text, with another text.

    >>> reworded(WrongBrokerError("not here", "b2"), "event 3: not here").broker
    'b2'
    """
    kind = type(error)
    changed = kind.__new__(kind, text, *error.args[1:])
    vars(changed).update(vars(error))
    return changed


def shortened(text: str) -> str:
    """Truncate a text that a message quotes, because it may be untrusted and long."""
    return text if len(text) <= SHOWN_QUOTE_MAX else text[:SHOWN_QUOTE_MAX] + "…"


def shown_value(value: object) -> str:
    """Return a wrong argument for an error text: bounded, and without control characters.

    >>> shown_value("5"), shown_value([5]), shown_value(10**400)
    ("'5'", 'a list', 'an int of 1,329 bits')
    """
    if isinstance(value, int) and value.bit_length() > 64:
        return f"an int of {value.bit_length():,} bits"
    if type(value) in (str, bool, int, float) or value is None:
        return shortened(repr(value))
    return f"a {type(value).__name__}"


def _excerpt(line: str, column: int) -> tuple[str, int]:
    """Cut a long line to a window around the column and replace control characters."""
    shown = "".join(character if character.isprintable() else " " for character in line)
    if len(shown) <= _EXCERPT_COLUMNS:
        return shown, column
    start = max(0, column - _EXCERPT_COLUMNS // 2)
    window = shown[start : start + _EXCERPT_COLUMNS]
    lead = "…" if start else ""
    tail = "…" if start + _EXCERPT_COLUMNS < len(shown) else ""
    return lead + window + tail, column - start + len(lead)
