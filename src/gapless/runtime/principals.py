"""The file of principals: who may come in, known by digests of their tokens.

A file in TOML, which ``gapless token`` writes and brokers read::

    [[tokens]]
    principal = "alice"
    sha256 = "…"  # of the token, in 64 hexadecimal digits; the token itself is nowhere
    expires = 2027-01-31T00:00:00Z  # may be left out

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
"""Stands for all principals where rights are stated, so nobody may be called that."""

_ID_DIGITS: Final = 12

_HEAD: Final = (
    "# Digests of tokens, written by `gapless token`; a broker reads it when it has changed.\n"
)


class TokenEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A token of a principal, as far as a broker knows it."""

    principal: str
    sha256: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
    expires: dt.datetime | None = None

    def __post_init__(self) -> None:
        """Refuse what would not mean the same to everybody."""
        try:
            check_principal(self.principal)
        except UsageError as error:
            raise ValueError(str(error)) from None
        if self.expires is not None and self.expires.tzinfo is None:
            raise ValueError(f"expires of {self.principal} needs a zone, such as Z")

    @property
    def id(self) -> str:
        """What people may call the token."""
        return self.sha256[:_ID_DIGITS]

    def is_expired(self, now: dt.datetime) -> bool:
        """Whether it counts no more."""
        return self.expires is not None and self.expires <= now


class _TokenFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What may stand in the file."""

    tokens: list[TokenEntry] = []


def check_principal(name: str) -> None:
    """Raise if nobody can be called so."""
    is_plain = name.isprintable() and not any(each.isspace() for each in name)
    if not (is_plain and 0 < len(name) <= PRINCIPAL_NAME_MAX) or name == EVERYBODY:
        raise UsageError(
            f"{shortened(name)!r} is no name of a principal: 1 to {PRINCIPAL_NAME_MAX} printable characters "
            f"without blanks, and not {EVERYBODY!r}"
        )


def load_tokens(path: Path) -> list[TokenEntry]:
    """Read the file; UsageError says what is wrong with it, and quotes nothing of it but names."""
    with contextlib.suppress(OSError):  # whoever reads it next says it better
        size = path.stat().st_size
        if size > TOKENS_BYTES_MAX:
            raise UsageError(f"{path} has {size:,} bytes, and may have {TOKENS_BYTES_MAX:,}")
    return read_toml(path, _TokenFile).tokens


def entry_of(token: str, entries: Sequence[TokenEntry]) -> TokenEntry | None:
    """Return the entry of a token; how long it takes tells nothing of the digests."""
    digest = digest_of(token).hex()
    found = None
    for entry in entries:
        if hmac.compare_digest(digest, entry.sha256):
            found = entry
    return found


# --- changing it --------------------------------------------------------------------------------------


def write_secret(path: Path, secret: str) -> None:
    """Write a token where only its owner can read it; what is there is not overwritten."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags, 0o600)
    except FileExistsError:
        raise UsageError(f"{path} is there already, and is not overwritten") from None
    with os.fdopen(descriptor, "w") as file:
        file.write(secret + "\n")


def add_token(path: Path, entry: TokenEntry) -> None:
    """Add a token to the file, which is made if there is none; what else stands there stays."""
    with _alone(path):
        if path.exists():
            load_tokens(path)  # nothing is added to what cannot be read
            before = path.read_text(encoding="utf-8").rstrip("\n") + "\n\n"
        else:
            before = f"{_HEAD}\n"
        _replace(path, before + _block(entry))


def remove_tokens(path: Path, principal: str, identity: str = "") -> list[TokenEntry]:
    """Remove the tokens of a principal, or one of them; return what was removed.

    The file is written anew: comments in it are lost.
    """
    with _alone(path):
        entries = load_tokens(path)
        removed = [
            each
            for each in entries
            if each.principal == principal and each.sha256.startswith(identity)
        ]
        if not removed:
            which = f" that begins with {identity}" if identity else ""
            raise UsageError(f"{path} has no token of {shortened(principal)}{which}")
        kept = [each for each in entries if each not in removed]
        _replace(path, "\n".join([_HEAD, *map(_block, kept)]))
        return removed


def _block(entry: TokenEntry) -> str:
    # JSON's texts are TOML's too
    name = msgspec.json.encode(entry.principal).decode()
    lines = ["[[tokens]]", f"principal = {name}", f'sha256 = "{entry.sha256}"']
    if entry.expires is not None:
        lines.append(f"expires = {entry.expires.isoformat()}")
    return "\n".join(lines) + "\n"


def _replace(path: Path, text: str) -> None:
    """Put a file there whole: a broker may read it at any moment."""
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
    """Keep others from changing files of this directory at the same time."""
    import fcntl  # not every system has it, and only who changes the file needs it

    descriptor = os.open(path.absolute().parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
