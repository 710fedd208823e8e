"""Tokens, which authenticate the side that dials, and the files that contain them.

A token is a secret text that its holder presents. The accepting side stores only digests. A digest
does not reveal its token if the token is long and random, as those of :func:`new_token` are.
"""

from __future__ import annotations

import hashlib
import secrets
from pathlib import Path
from typing import Final

from gapless.core.errors import UsageError
from gapless.core.limits import TOKEN_CHARACTERS_MAX, TOKENS_BYTES_MAX

__all__ = ["digest_of", "new_token", "read_tokens", "token_fault"]

_PREFIX: Final = "gapless-"
"""Tokens that are made here start with it, so that secret scanners find them in texts."""

_RANDOM_BYTES: Final = 32


def new_token() -> str:
    """Return a token that cannot be guessed.

    >>> token_fault(new_token()), len(new_token())
    (None, 51)
    """
    return _PREFIX + secrets.token_urlsafe(_RANDOM_BYTES)


def digest_of(token: str) -> bytes:
    """Return the digest under which a token is stored."""
    return hashlib.sha256(token.encode()).digest()


def token_fault(text: str) -> str | None:
    """Return why a text cannot be a token, without showing the text; None if it can.

    >>> token_fault("two words")
    'a token has no blanks and only printable ASCII'
    """
    if not text:
        return "a token is not empty"
    if len(text) > TOKEN_CHARACTERS_MAX:
        return (
            f"a token has at most {TOKEN_CHARACTERS_MAX:,} characters, and this has {len(text):,}"
        )
    if not (text.isascii() and text.isprintable()) or " " in text:
        return "a token has no blanks and only printable ASCII"
    return None


def read_tokens(path: Path, *, most: int = 1) -> tuple[str, ...]:
    """Return the tokens of a file, one a line; empty lines are ignored."""
    shown = str(path) if str(path).isprintable() else ascii(str(path))
    try:
        with path.open("rb") as file:
            data = file.read(TOKENS_BYTES_MAX + 1)
        lines = data.decode().split()
    except OSError as error:
        raise UsageError(f"the token in {shown} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{shown} contains no token: it is not a text file") from None
    if not 0 < len(lines) <= most:
        wanted = "one token" if most == 1 else f"1 to {most} tokens, one a line"
        raise UsageError(f"{shown} must contain {wanted}, and contains {len(lines):,}")
    for line in lines:
        fault = token_fault(line)
        if fault is not None:
            raise UsageError(f"{shown}: {fault}")
    return tuple(lines)
