"""The file of principals, with the digests of their tokens.

A file in TOML, which ``gapless token`` writes and brokers read::

    [[tokens]]
    principal = "alice"
    sha256 = "…"  # of the token, in 64 hexadecimal digits; the token itself is not stored
    expires = 2027-01-31T00:00:00Z  # optional
    operator = true  # optional; for the requests of :mod:`.operator_requests`

A principal may have several tokens: a new one is added before the old one is removed.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import hmac
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Final

import msgspec

from gapless.core.errors import UsageError, shortened
from gapless.core.limits import PRINCIPAL_NAME_MAX, TOKENS_BYTES_MAX
from gapless.runtime.toml import read_toml
from gapless.wire import digest_of

__all__ = [
    "EVERYBODY",
    "TokenEntry",
    "add_token",
    "check_principal",
    "entry_of",
    "load_tokens",
    "remove_tokens",
    "write_secret",
]

EVERYBODY: Final = "*"
"""Stands for all principals where rights are stated, so it is no name of a principal."""

_ID_DIGITS: Final = 12

_HEAD: Final = (
    "# Digests of tokens, written by `gapless token`; a broker reads it when it has changed.\n"
)


class TokenEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One token of a principal, as a broker stores it."""

    principal: str
    sha256: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
    expires: dt.datetime | None = None
    operator: bool = False

    def __post_init__(self) -> None:
        """Refuse an invalid name, and an expiry without a time zone."""
        try:
            check_principal(self.principal)
        except UsageError as error:
            raise ValueError(str(error)) from None
        if self.expires is not None and self.expires.tzinfo is None:
            raise ValueError(f"expires of {self.principal} needs a time zone, such as Z")

    @property
    def id(self) -> str:
        """The short id of the token, for operators."""
        return self.sha256[:_ID_DIGITS]

    def is_expired(self, now: dt.datetime) -> bool:
        """Whether the token has expired."""
        return self.expires is not None and self.expires <= now


class _TokenFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The keys of the file."""

    tokens: list[TokenEntry] = []


def check_principal(name: str) -> None:
    """Raise UsageError if a principal cannot have this name."""
    is_plain = name.isprintable() and not any(each.isspace() for each in name)
    if not (is_plain and 0 < len(name) <= PRINCIPAL_NAME_MAX) or name == EVERYBODY:
        raise UsageError(
            f"{shortened(name)!r} is no name of a principal: 1 to {PRINCIPAL_NAME_MAX} printable characters "
            f"without blanks, and not {EVERYBODY!r}"
        )


def load_tokens(path: Path) -> list[TokenEntry]:
    """Read the file; a UsageError names the fault and quotes only names from the file."""
    with contextlib.suppress(OSError):  # the next read reports it
        size = path.stat().st_size
        if size > TOKENS_BYTES_MAX:
            raise UsageError(f"{path} has {size:,} bytes, and may have {TOKENS_BYTES_MAX:,}")
    return read_toml(path, _TokenFile, secret=True).tokens


def entry_of(token: str, entries: Sequence[TokenEntry]) -> TokenEntry | None:
    """Return the entry of a token; the time it takes reveals nothing about the digests."""
    digest = digest_of(token).hex()
    found = None
    for entry in entries:
        if hmac.compare_digest(digest, entry.sha256):
            found = entry
    return found


# --- changing the file ------------------------------------------------------------------------


def write_secret(path: Path, secret: str) -> None:
    """Write a token to a new file that only its owner can read."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags, 0o600)
    except FileExistsError:
        raise UsageError(f"{path} exists and is not overwritten: choose another file") from None
    with os.fdopen(descriptor, "w") as file:
        file.write(secret + "\n")


def add_token(path: Path, entry: TokenEntry) -> None:
    """Add a token to the file, which is created if it does not exist; other content is kept."""
    with _alone(path):
        if path.exists():
            load_tokens(path)  # nothing is added to an invalid file
            before = path.read_text(encoding="utf-8").rstrip("\n") + "\n\n"
        else:
            before = f"{_HEAD}\n"
        _replace(path, before + _block(entry))


def remove_tokens(path: Path, principal: str, identity: str = "") -> list[TokenEntry]:
    """Remove the tokens of a principal, or one of them; return what was removed.

    The file is written again; its comments are lost.
    """
    with _alone(path):
        entries = load_tokens(path)
        removed = [
            each
            for each in entries
            if each.principal == principal and each.sha256.startswith(identity)
        ]
        if not removed:
            which = f" whose id begins with {identity}" if identity else ""
            raise UsageError(f"{path} has no token of {shortened(principal)}{which}")
        kept = [each for each in entries if each not in removed]
        _replace(path, "\n".join([_HEAD, *map(_block, kept)]))
        return removed


def _block(entry: TokenEntry) -> str:
    # JSON strings are valid TOML
    name = msgspec.json.encode(entry.principal).decode()
    lines = ["[[tokens]]", f"principal = {name}", f'sha256 = "{entry.sha256}"']
    if entry.expires is not None:
        lines.append(f"expires = {entry.expires.isoformat()}")
    if entry.operator:
        lines.append("operator = true")
    return "\n".join(lines) + "\n"


def _replace(path: Path, text: str) -> None:
    """Replace the file atomically, because a broker may read it at any time."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        if path.exists():
            os.fchmod(file.fileno(), path.stat().st_mode & 0o777)
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Exclude concurrent changes to files of this directory."""
    import fcntl  # not every system has it, and only changes need it

    descriptor = os.open(path.absolute().parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
