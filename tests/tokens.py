"""Principals for tests: a token file and the tokens themselves."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

from gapless.runtime.principals import TokenEntry, add_token, write_secret
from gapless.wire import digest_of, new_token

__all__ = ["Principals"]


class Principals:
    """A token file in a directory, and the tokens of its principals."""

    def __init__(self, directory: Path, *names: str) -> None:
        self.directory = directory
        self.path = directory / "tokens.toml"
        self.tokens: dict[str, str] = {}
        self.path.write_text("")
        for name in names:
            self.add(name)

    def __getitem__(self, name: str) -> str:
        """Return the token of a principal."""
        return self.tokens[name]

    def add(self, name: str, *, expires: dt.datetime | None = None, operator: bool = False) -> str:
        """Add a token of a principal."""
        token = self.tokens[name] = new_token()
        digest = digest_of(token).hex()
        entry = TokenEntry(principal=name, sha256=digest, expires=expires, operator=operator)
        add_token(self.path, entry)
        return token

    def file_of(self, name: str) -> Path:
        """Return a file with the token of a principal."""
        path = self.directory / f"{name}.token"
        if not path.exists():
            write_secret(path, self.tokens[name])
        return path
