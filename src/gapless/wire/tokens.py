"""Tokens: secrets by which the side that dials is known, and the files that hold them.

A token is a secret text that its holder shows and nobody else has. Who lets others in keeps digests:
from these no token can be had, as long as tokens are long and drawn by chance, as those are that are
made here.
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
"""What tokens that are made here begin with, so that programs that look for secrets in texts find them."""

_RANDOM_BYTES: Final = 32


def new_token() -> str:
    """Return a token that nobody can guess.

    >>> token_fault(new_token()), len(new_token())
    (None, 51)
    """
    return _PREFIX + secrets.token_urlsafe(_RANDOM_BYTES)


def digest_of(token: str) -> bytes:
    """Return what is kept of a token."""
    return hashlib.sha256(token.encode()).digest()


def token_fault(text: str) -> str | None:
    """Say why a text cannot be a token, without saying what it is.

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
    """Return the tokens of a file, one a line; empty lines do not count."""
    try:
        with path.open("rb") as file:
            data = file.read(TOKENS_BYTES_MAX + 1)
        lines = data.decode().split()
    except OSError as error:
        raise UsageError(f"the token in {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path} holds no token: it is no text") from None
    if not 0 < len(lines) <= most:
        wanted = "one token" if most == 1 else f"1 to {most} tokens, one a line"
        raise UsageError(f"{path} must hold {wanted}, and holds {len(lines):,}")
    for line in lines:
        fault = token_fault(line)
        if fault is not None:
            raise UsageError(f"{path}: {fault}")
    return tuple(lines)
