"""The configuration file of one broker, for ``gapless broker --config FILE``.

A file in TOML; only ``name`` and ``data`` are required::

    name = "l1"
    data = "/var/lib/gapless/l1"  # relative to this file
    overlay = "trading.toml"  # the overlay's file, relative to this one; omitted: a single broker
    cell = "london"  # optional if there is an overlay file
    join = false  # true: starts alone in its cell, and waits for `gapless topo append`
    listen = "127.0.0.1:7400"  # the default: only this computer can connect
    advertise = "l1.example:7400"  # the address for others, if it is not ``listen``
    metrics = "127.0.0.1:9400"  # /metrics and /healthz; omitted: not served

    [log]
    level = "info"  # debug, info, warning or error
    format = "text"  # or json
    file = "l1.log"  # relative to this file; omitted: standard error
    bytes_max = 16777216  # a full file is renamed to l1.log.1, …
    files_kept = 4  # how many renamed files are kept

    [audit]  # omitted: no audit logs
    directory = "audit"  # relative to this file; brokers and clients may share one
    bytes_max = 1073741824  # of all files of this broker; the oldest are removed
    segment_bytes = 16777216  # a file ends when it is so large, or
    segment_s = 300  # so old
    flush_ms = 100  # the longest delay of a record
    attributes = true  # of publications; needed to compute the expected deliveries

    [access]  # omitted: no tokens are required
    tokens = "tokens.toml"  # relative to this file; the principals (`gapless token new`)
    broker_token = "broker.token"  # the secret that this overlay's brokers send each other

    [parameters]  # any of gapless.core.parameters; they override those of the overlay's file
    retention_s = 86400  # or "24h"

A broker on an address that is not a loopback is open to other computers and logs a warning when it
starts. Tokens are sent unencrypted.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from gapless.audit.options import AuditOptions
from gapless.core.address import PORT, Address
from gapless.core.errors import UsageError
from gapless.core.limits import LOG_FILE_BYTES_MIN, LOG_FILES_MAX
from gapless.core.parameters import Parameters
from gapless.core.paths import PathText
from gapless.runtime.authentication import AccessOptions
from gapless.runtime.logs import LogFormat
from gapless.runtime.overlay_config import OverlayConfig, load_overlay, read_address, single
from gapless.runtime.parameter_values import ParameterValue, parameter_values
from gapless.runtime.settings import BrokerSettings
from gapless.runtime.toml import read_toml

__all__ = ["BrokerConfig", "LogConfig", "listen_address", "load_config"]


class LogConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Level, format and files of a broker's log."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: LogFormat = LogFormat.TEXT
    file: PathText = ""
    bytes_max: Annotated[int, msgspec.Meta(ge=LOG_FILE_BYTES_MIN)] = 16_777_216
    files_kept: Annotated[int, msgspec.Meta(ge=0, le=LOG_FILES_MAX)] = 4


class _BrokerFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The keys of the file."""

    name: str
    data: PathText
    overlay: PathText = ""
    cell: str = ""
    join: bool = False
    listen: str = f"127.0.0.1:{PORT}"
    advertise: str = ""
    metrics: str = ""
    disk_shared_by: Annotated[int, msgspec.Meta(ge=1)] = 1
    log: LogConfig = LogConfig()
    audit: AuditOptions | None = None
    access: AccessOptions | None = None
    parameters: dict[str, ParameterValue] = {}


class BrokerConfig(msgspec.Struct, frozen=True):
    """The content of a configuration file, checked."""

    settings: BrokerSettings
    log: LogConfig


def listen_address(path: Path) -> Address:
    """Return the address at which the broker of a file is reached."""
    found = read_toml(path, _BrokerFile)
    key, text = ("advertise", found.advertise) if found.advertise else ("listen", found.listen)
    try:
        return read_address(key, text)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None


def load_config(path: Path, *, restarts: int = 0) -> BrokerConfig:
    """Read and check a broker's configuration file."""
    found = read_toml(path, _BrokerFile)
    given = load_overlay(path.parent / found.overlay) if found.overlay else None
    try:
        overlay = given or single(found.name, found.cell or "c1")
        settings = BrokerSettings(
            name=found.name,
            overlay=overlay,
            data=path.parent / found.data,
            listen=read_address("listen", found.listen),
            advertise=read_address("advertise", found.advertise) if found.advertise else None,
            metrics=read_address("metrics", found.metrics) if found.metrics else None,
            parameters=_parameters(found, overlay),
            audit=_audit(found, path.parent),
            access=_access(found, path.parent),
            join=found.join,
            restarts=restarts,
            disk_shared_by=found.disk_shared_by,
        )
        _check_cell(found, settings)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None
    log = found.log
    if log.file:
        log = msgspec.structs.replace(log, file=str(path.parent / log.file))
    return BrokerConfig(settings, log)


def _audit(found: _BrokerFile, base: Path) -> AuditOptions | None:
    if found.audit is None:
        return None
    directory = str(base / found.audit.directory)
    return msgspec.structs.replace(found.audit, directory=directory)


def _access(found: _BrokerFile, base: Path) -> AccessOptions | None:
    if found.access is None:
        return None
    named = msgspec.structs.asdict(found.access).items()
    return AccessOptions(**{key: str(base / name) if name else "" for key, name in named})


def _check_cell(found: _BrokerFile, settings: BrokerSettings) -> None:
    if found.cell not in {"", settings.cell}:
        raise UsageError(
            f"cell is {found.cell!r}, but in {found.overlay} the broker {found.name} "
            f"is in the cell {settings.cell!r}"
        )


def _parameters(found: _BrokerFile, overlay: OverlayConfig) -> Parameters:
    own = parameter_values(found.parameters)
    delta = own.get("delta", overlay.delta)
    if delta != overlay.delta and found.overlay:
        raise UsageError(
            f"parameters.delta is {delta}, but {found.overlay} has {overlay.delta}: all brokers "
            "of an overlay must have the same value, so set it there only"
        )
    given: dict[str, Any] = {**overlay.parameters, **own, "delta": delta}
    return Parameters(**given)
