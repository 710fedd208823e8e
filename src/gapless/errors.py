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
    DamagedError,
    DeadlineError,
    DiskFullError,
    ElsewhereError,
    FilterError,
    FilterLimitError,
    FilterSyntaxError,
    FilterTypeError,
    GapError,
    GaplessError,
    IndexBusyError,
    InUseError,
    NewerFormatError,
    OutcomeUnknownError,
    PositionError,
    ProtocolError,
    RefusedError,
    StorageError,
    TakenOverError,
    TooSlowError,
    UnavailableError,
    UsageError,
)

__all__ = [
    "AddressError",
    "AttributeValueError",
    "ClosedError",
    "ConnectionLostError",
    "DamagedError",
    "DeadlineError",
    "DiskFullError",
    "ElsewhereError",
    "FilterError",
    "FilterLimitError",
    "FilterSyntaxError",
    "FilterTypeError",
    "GapError",
    "GaplessError",
    "InUseError",
    "IndexBusyError",
    "NewerFormatError",
    "OutcomeUnknownError",
    "PositionError",
    "ProtocolError",
    "RefusedError",
    "StorageError",
    "TakenOverError",
    "TooSlowError",
    "UnavailableError",
    "UsageError",
]
