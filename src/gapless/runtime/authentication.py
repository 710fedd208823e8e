"""The guard: says who a newcomer is, by the token that it shows.

Clients are known by a file of principals (:mod:`.principals`), brokers of the overlay by a secret that
all of them have. Both files are looked at with every connection and read when they have changed. While
one cannot be read, nobody new is let in by it: what it said before may be what was to be revoked. Who is
there stays.

Only the door is guarded. What a principal may do is not decided here, and is not decided anywhere yet.
"""

from __future__ import annotations

import datetime as dt
import hmac
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Generic, TypeVar

import msgspec

from gapless.core.errors import UsageError
from gapless.core.limits import BROKER_TOKENS_MAX, TOKEN_CHARACTERS_MAX
from gapless.runtime.logs import StructuredLog
from gapless.runtime.principals import TokenEntry, entry_of, load_tokens
from gapless.wire import DisconnectReason, digest_of, read_tokens

__all__ = ["AccessOptions", "AuthenticationDenial", "Authenticator"]

_HOW: Final = "token=, token_file=, GAPLESS_TOKEN_FILE or --token-file"

T = TypeVar("T")


class AccessOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whether a broker asks who others are."""

    tokens: str = ""
    """The file of principals; without it nobody is asked."""
    broker_token: str = ""
    """The file with the secret that brokers of this overlay show each other."""

    def __post_init__(self) -> None:
        """Refuse what says nothing: it would look like protection."""
        if not (self.tokens or self.broker_token):
            raise ValueError("name a file of tokens, or leave [access] out")


class AuthenticationDenial(msgspec.Struct, frozen=True):
    """Somebody is not let in, and why."""

    code: DisconnectReason
    reason: str


class _CachedFile(Generic[T]):
    """What a file says now."""

    def __init__(self, path: Path, read: Callable[[Path], T], log: StructuredLog) -> None:
        self._path = path
        self._read = read
        self._log = log
        self._seen = _state(path)
        self._content: T | None = read(path)

    def now(self) -> T | None:
        """Return what it says, None if it cannot be read."""
        seen = _state(self._path)
        if seen != self._seen:
            self._seen = seen
            try:
                self._content = self._read(self._path)
                self._log.info("tokens are read again", file=self._path)
            except UsageError as error:
                self._content = None
                self._log.error(
                    "tokens cannot be read, nobody new is let in by them", reason=str(error)
                )
        return self._content


def _state(path: Path) -> tuple[int, ...]:
    """Return what changes when a file does."""
    try:
        found = path.stat()
    except OSError as error:
        return (error.errno or 0,)
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


class Authenticator:
    """Knows principals by their tokens."""

    def __init__(
        self, options: AccessOptions, log: StructuredLog, clock: Callable[[], dt.datetime] = _now
    ) -> None:
        """UsageError if a file cannot be read now."""
        self._clock = clock
        self._tokens: _CachedFile[list[TokenEntry]] | None = None
        self._secrets: _CachedFile[tuple[str, ...]] | None = None
        if options.tokens:
            self._tokens = _CachedFile(Path(options.tokens), load_tokens, log)
        if options.broker_token:
            self._secrets = _CachedFile(Path(options.broker_token), _read_secrets, log)

    @property
    def is_required(self) -> bool:
        """Whether nobody comes in without a token."""
        return self._tokens is not None

    @property
    def own_token(self) -> str:
        """What this broker shows to others."""
        secrets = None if self._secrets is None else self._secrets.now()
        return secrets[0] if secrets else ""

    def authenticate_client(self, token: str) -> str | AuthenticationDenial:
        """Return the principal of a client."""
        if self._tokens is None:
            return ""
        entries = self._tokens.now()
        if entries is None:
            return _unavailable()
        if not token:
            return _denied(f"this broker asks who you are, and no token came: give one with {_HOW}")
        entry = entry_of(token, entries) if len(token) <= TOKEN_CHARACTERS_MAX else None
        if entry is None:
            return _denied(
                "this broker does not know your token: it was removed, or is mistyped, or is of "
                "another overlay"
            )
        if entry.is_expired(self._clock()):
            assert entry.expires is not None
            when = entry.expires.isoformat()
            return _denied(
                f"your token expired at {when}: have a new one made for {entry.principal}"
            )
        return entry.principal

    def authenticate_broker(self, token: str) -> AuthenticationDenial | None:
        """Say why somebody is not taken for a broker of the overlay; None if it is."""
        if self._tokens is None:
            return None
        if self._secrets is None:
            return _denied("this broker has no secret to know others by: set broker_token here")
        secrets = self._secrets.now()
        if secrets is None:
            return _unavailable()
        if not token:
            return _denied("brokers show a token here: give the one that dials a broker_token")
        if len(token) > TOKEN_CHARACTERS_MAX or not _is_among(token, secrets):
            return _denied("this is no token of brokers here: give both the same broker_token")
        return None


def _read_secrets(path: Path) -> tuple[str, ...]:
    return read_tokens(path, most=BROKER_TOKENS_MAX)


def _is_among(token: str, secrets: Sequence[str]) -> bool:
    digest, found = digest_of(token), False
    for each in secrets:
        found |= hmac.compare_digest(digest, digest_of(each))
    return found


def _denied(reason: str) -> AuthenticationDenial:
    return AuthenticationDenial(DisconnectReason.NOT_AUTHENTICATED, reason)


def _unavailable() -> AuthenticationDenial:
    return AuthenticationDenial(
        DisconnectReason.AUTHENTICATION_UNAVAILABLE,
        "this broker cannot read its tokens now; its log says why",
    )
