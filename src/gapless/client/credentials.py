"""The token that identifies a client, or the file that has it."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Final

import msgspec

from gapless.client.arguments import check_text
from gapless.core.address import Address
from gapless.core.errors import UsageError, shown_value
from gapless.wire import read_tokens, token_fault

__all__ = ["TOKEN_FILE_VARIABLE", "TOKEN_VARIABLE", "Credentials"]

TOKEN_VARIABLE: Final = "GAPLESS_TOKEN"  # noqa: S105 - its name, not a secret
TOKEN_FILE_VARIABLE: Final = "GAPLESS_TOKEN_FILE"  # noqa: S105 - its name, not a secret

_LOG: Final = logging.getLogger("gapless.client")


class Credentials(msgspec.Struct, frozen=True, kw_only=True):
    """A token, a file that has one, or neither: then the environment is searched.

    ``repr`` does not show the token.

    >>> Credentials(token="sesame")
    Credentials(token='…', token_file='')
    """

    token: str = ""
    token_file: str = ""

    @classmethod
    def of(cls, token: str | None = None, token_file: str | Path | None = None) -> Credentials:
        """Return the given credentials; raise UsageError if they are not valid."""
        if token is not None and token_file is not None:
            raise UsageError("give a token or the file that has it, not both")
        if token is not None:
            if not isinstance(token, str):
                raise UsageError(f"token is a str, not a {type(token).__name__}")
            fault = token_fault(token)
            if fault is not None:
                raise UsageError(f"token: {fault}")
            return cls(token=str.__str__(token))
        return cls(token_file="" if token_file is None else _path(token_file))

    def check(self) -> None:
        """Raise UsageError if the token cannot be read or is not valid."""
        self._found(os.environ)

    def token_for(self, address: Address) -> str:
        """Return the token for a connection, or an empty text; a file is read every time."""
        found = self._found(os.environ)
        if found and not address.is_loopback:
            _warn(address)
        return found

    def _found(self, environment: Mapping[str, str]) -> str:
        if self.token or self.token_file:
            return self.token or read_tokens(Path(self.token_file))[0]
        token = environment.get(TOKEN_VARIABLE, "")
        fault = token_fault(token) if token else None
        if fault is not None:
            raise UsageError(f"{TOKEN_VARIABLE}: {fault}")
        path = environment.get(TOKEN_FILE_VARIABLE, "")
        if token or not path:
            return token
        return read_tokens(Path(path))[0]

    def __repr__(self) -> str:
        """Show everything but the token."""
        shown = ", ".join(f"{name}={value!r}" for name, value in self.__rich_repr__())
        return f"Credentials({shown})"

    def __rich_repr__(self) -> list[tuple[str, str]]:
        return [("token", "…" if self.token else ""), ("token_file", self.token_file)]


def _path(given: str | Path) -> str:
    if not isinstance(given, str | Path):
        raise UsageError(f"token_file is a path, not a {type(given).__name__}")
    text = check_text("token_file", str(given))
    if not text or "\0" in text:
        raise UsageError(f"token_file is the path of a file, not {shown_value(text)}")
    return text


@lru_cache(maxsize=1_024)
def _warn(address: Address) -> None:
    """Warn once for each address."""
    _LOG.warning("the token is sent unencrypted to %s: the network between can read it", address)
