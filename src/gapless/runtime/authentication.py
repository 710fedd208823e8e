"""Authentication of new connections by their tokens.

Clients are authenticated by a file of principals (:mod:`.principals`), brokers of the overlay by a
secret that they share. Both files are checked for changes at every connection and read again after
a change. While a file cannot be read, new connections are refused, because its former content may
have been revoked. Open connections continue.

Only connections are authenticated. Of rights there is one, that of an operator token
(:mod:`.operator_requests`).
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
from gapless.core.paths import PathText
from gapless.runtime.logs import StructuredLog
from gapless.runtime.principals import TokenEntry, entry_of, load_tokens
from gapless.wire import DisconnectReason, digest_of, read_tokens

__all__ = ["AccessOptions", "AuthenticationDenial", "Authenticator", "ClientIdentity"]

_HOW: Final = "token=, token_file=, GAPLESS_TOKEN_FILE or --token-file"

T = TypeVar("T")


class AccessOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which tokens a broker requires."""

    tokens: PathText = ""
    """The file of principals; without it no token is required."""
    broker_token: PathText = ""
    """The file with the secret that brokers of this overlay send each other."""

    def __post_init__(self) -> None:
        """Refuse an empty section, which would look like protection."""
        if not (self.tokens or self.broker_token):
            raise ValueError("[access] is empty: name a file of tokens, or omit the section")


class AuthenticationDenial(msgspec.Struct, frozen=True):
    """The refusal of a connection."""

    code: DisconnectReason
    reason: str


class ClientIdentity(msgspec.Struct, frozen=True):
    """What a broker knows of an accepted client. Where no token is required all are operators."""

    principal: str = ""
    is_operator: bool = True


class _CachedFile(Generic[T]):
    """The content of a file, read again after a change."""

    def __init__(self, path: Path, read: Callable[[Path], T], log: StructuredLog) -> None:
        self._path = path
        self._read = read
        self._log = log
        self._seen = _state(path)
        self._content: T | None = read(path)

    def now(self) -> T | None:
        """Return the content, or None if the file cannot be read."""
        seen = _state(self._path)
        if seen != self._seen:
            self._seen = seen
            try:
                self._content = self._read(self._path)
                self._log.info("tokens are read again", file=self._path)
            except UsageError as error:
                self._content = None
                self._log.error(
                    "tokens cannot be read, new connections are refused", reason=str(error)
                )
        return self._content


def _state(path: Path) -> tuple[int, ...]:
    """Return a value that changes with the file."""
    try:
        found = path.stat()
    except OSError as error:
        return (error.errno or 0,)
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


class Authenticator:
    """Finds the principal of a token."""

    def __init__(
        self, options: AccessOptions, log: StructuredLog, clock: Callable[[], dt.datetime] = _now
    ) -> None:
        """Raises UsageError if a file cannot be read."""
        self._clock = clock
        self._tokens: _CachedFile[list[TokenEntry]] | None = None
        self._secrets: _CachedFile[tuple[str, ...]] | None = None
        if options.tokens:
            self._tokens = _CachedFile(Path(options.tokens), load_tokens, log)
        if options.broker_token:
            self._secrets = _CachedFile(Path(options.broker_token), _read_secrets, log)

    @property
    def is_required(self) -> bool:
        """Whether every connection needs a token."""
        return self._tokens is not None

    @property
    def own_token(self) -> str:
        """The token that this broker sends to others."""
        secrets = None if self._secrets is None else self._secrets.now()
        return secrets[0] if secrets else ""

    def authenticate_client(self, token: str) -> ClientIdentity | AuthenticationDenial:
        """Return the identity of a client, or the refusal."""
        if self._tokens is None:
            return ClientIdentity()
        entries = self._tokens.now()
        if entries is None:
            return _unavailable()
        if not token:
            return _denied(f"this broker requires a token: give one with {_HOW}")
        entry = entry_of(token, entries) if len(token) <= TOKEN_CHARACTERS_MAX else None
        if entry is None:
            return _denied(
                "this broker does not know the token: it was removed, is mistyped or belongs to "
                "another overlay"
            )
        if entry.is_expired(self._clock()):
            assert entry.expires is not None
            when = entry.expires.isoformat()
            return _denied(
                f"your token expired at {when}: have a new one made for {entry.principal}"
            )
        return ClientIdentity(entry.principal, entry.operator)

    def authenticate_broker(self, token: str) -> AuthenticationDenial | None:
        """Return why a connection is not accepted as a broker of the overlay, or None."""
        if self._tokens is None:
            return None
        if self._secrets is None:
            return _denied("this broker has no secret for other brokers: set its broker_token")
        secrets = self._secrets.now()
        if secrets is None:
            return _unavailable()
        if not token:
            return _denied("brokers need a token here: set broker_token at the one that dials")
        if len(token) > TOKEN_CHARACTERS_MAX or not _is_among(token, secrets):
            return _denied("the broker token is not valid: give both brokers the same one")
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
        "this broker cannot read its token file now; see its log for the reason",
    )
