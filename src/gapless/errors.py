"""Every error that gapless raises on purpose; the tree is drawn in :mod:`gapless.core.errors`.

>>> from gapless import errors
>>> issubclass(errors.DeadlineError, errors.GaplessError)
True
"""

from gapless.core.errors import (
    AddressError,
    AttributeValueError,
    ClosedError,
    ConnectionLostError,
    DeadlineError,
    ElsewhereError,
    FilterError,
    FilterLimitError,
    FilterSyntaxError,
    FilterTypeError,
    GapError,
    GaplessError,
    IndexBusyError,
    OutcomeUnknownError,
    PositionError,
    ProtocolError,
    RefusedError,
    TakenOverError,
    UnavailableError,
    UsageError,
)

__all__ = [
    "AddressError",
    "AttributeValueError",
    "ClosedError",
    "ConnectionLostError",
    "DeadlineError",
    "ElsewhereError",
    "FilterError",
    "FilterLimitError",
    "FilterSyntaxError",
    "FilterTypeError",
    "GapError",
    "GaplessError",
    "IndexBusyError",
    "OutcomeUnknownError",
    "PositionError",
    "ProtocolError",
    "RefusedError",
    "TakenOverError",
    "UnavailableError",
    "UsageError",
]
