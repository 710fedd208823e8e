"""The message of a Spark error, without the Java and Python around it."""

from __future__ import annotations

import re
from typing import Final

from gapless.core.errors import (
    AuthenticationError,
    ConnectionLostError,
    DeadlineError,
    GaplessError,
    OutcomeUnknownError,
    ProtocolError,
    RefusedError,
    StorageError,
    UnavailableError,
    UsageError,
)

__all__ = ["as_ours", "reason_of"]

_ERROR_LINE: Final = re.compile(
    r"(?:^(?:\[.*?\] )?(?:Failed to [^:]*: )?(?:[\w.]+\.)?|gapless\.core\.errors\.)(\w+Error): (.+)$",
    re.MULTILINE,
)
"""An error of Python at the beginning of a line, or an error of gapless inside a line of Spark."""

_OURS: Final[dict[str, type[GaplessError]]] = {
    each.__name__: each
    for each in (
        AuthenticationError,
        ConnectionLostError,
        DeadlineError,
        OutcomeUnknownError,
        ProtocolError,
        RefusedError,
        StorageError,
        UnavailableError,
    )
}
"""Errors that matter to the caller, and that are made of a message alone."""


def as_ours(error: Exception, prefix: str) -> GaplessError:
    r"""Return an error with Spark's message, of the gapless type that was raised inside, if any.

    >>> as_ours(ValueError("aborted\ngapless.core.errors.DeadlineError: too late"), "it stopped")
    DeadlineError('it stopped: too late')
    >>> as_ours(
    ...     ValueError("[X] the query ended: gapless.core.errors.DeadlineError: too late"),
    ...     "it stopped",
    ... )
    DeadlineError('it stopped: too late')
    """
    errors = _ERROR_LINE.findall(_text(error))
    kind = _OURS.get(errors[0][0], UsageError) if errors else UsageError
    made = kind(f"{prefix}: {reason_of(error)}")
    made.__cause__ = error
    return made


def reason_of(error: Exception) -> str:
    r"""Return the decisive line of an error: the first that Python raised.

    >>> reason_of(
    ...     ValueError("job aborted\n  File x\ngapless.core.errors.UsageError: no log\nat java")
    ... )
    'no log'
    """
    text = _text(error)
    messages = [message for _, message in _ERROR_LINE.findall(text)]
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return str((messages or lines or [type(error).__name__])[0])


def _text(error: Exception) -> str:
    java = getattr(error, "java_exception", None)
    return str(java.getMessage() if java is not None else error)
