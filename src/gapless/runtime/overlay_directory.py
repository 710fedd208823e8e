"""The data directory of an overlay: locked by one supervisor, with the files that its brokers read.

The directory holds everything of an overlay::

    overlay.toml            the tree, and the address of each broker
    overlay.sock            takes requests to start and stop brokers
    overlay.lock            locked by the supervisor that runs the overlay
    broker.token            with tokens: the secret of the brokers
    b1/broker.toml          the configuration that `gapless broker --config` reads
    b1/broker.log           the log of the broker; full files are renamed to broker.log.1, …
    b1/store/               the data of the broker

A file that was edited is kept, unless the operator wants it written again: ``broker.toml`` is used as
it is, and an ``overlay.toml`` is used if it says the same as the options. A directory that another
supervisor uses, or that was made for another tree, is refused before any file is changed, because
running brokers read these files when they are started again.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from gapless.audit.options import AuditOptions
from gapless.core.address import Address
from gapless.core.errors import UsageError
from gapless.core.ids import BrokerId
from gapless.overlay.neighbourhood import Topology
from gapless.runtime.authentication import AccessOptions
from gapless.runtime.broker_process import BrokerProcess, ProcessPlacement
from gapless.runtime.config import LogConfig, listen_address
from gapless.runtime.generated_files import is_edited, set_aside, write_generated
from gapless.runtime.overlay_config import OverlayConfig, load_overlay
from gapless.runtime.overlay_socket import SOCKET
from gapless.runtime.principals import load_tokens, write_secret
from gapless.runtime.toml import toml_text
from gapless.storage.lock import DirectoryLock
from gapless.wire import new_token

__all__ = ["OverlayDirectory", "edited_addresses", "refuse_names_of_files"]

_OVERLAY: Final = "overlay.toml"
_CONFIG: Final = "broker.toml"
_LOCK: Final = "overlay.lock"
_SECRET: Final = "broker.token"  # noqa: S105  # the name of a file


class OverlayDirectory:
    """The files of an overlay's data directory."""

    def __init__(
        self,
        path: Path,
        overlay: OverlayConfig,
        *,
        log: LogConfig,
        audit: AuditOptions | None,
        tokens: Path | None,
        placement: ProcessPlacement,
        overwrite: bool = False,
    ) -> None:
        self.path = path
        self.kept: list[Path] = []
        """The edited files that are used as they are."""
        self._overwrite = overwrite
        self._overlay = overlay
        self._log = log
        self._audit = audit
        self._tokens = tokens
        self._placement = placement
        self._lock: DirectoryLock | None = None
        self._newcomers: dict[BrokerId, Address | None] = {}
        """The brokers that were started to be appended, with their addresses of metrics."""

    def lock(self) -> None:
        """Lock the directory, unless it holds another overlay."""
        if self._tokens is not None:
            load_tokens(self._tokens)  # reported here once instead of by every broker
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = DirectoryLock(self.path, _LOCK)
        try:
            self._refuse_other_overlay()
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        """Release the directory for another supervisor."""
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.release()

    def _refuse_other_overlay(self) -> None:
        """Refuse a changed overlay, before the files of running brokers are overwritten."""
        path = self.path / _OVERLAY
        if not path.exists():
            return
        found = load_overlay(path)
        if found.topology != self._overlay.topology:
            difference = "its cells, brokers or edges differ"
        elif found.delta != self._overlay.delta:
            difference = f"its delta is {found.delta}, not {self._overlay.delta}"
        else:
            return
        raise UsageError(
            f"{self.path} holds another overlay ({difference}): choose another data directory, "
            "or start that overlay with its own overlay.toml"
        )

    def write_files(self, brokers: Sequence[BrokerProcess], metrics_ports: Sequence[int]) -> None:
        """Write the files of the brokers, except those that were edited.

        ``metrics_ports`` are in the order of the brokers; if empty, they serve no metrics.
        """
        self.kept.clear()
        self._refuse_edited_overlay()
        self._write(self.path / _OVERLAY, self._overlay.to_toml())
        if self._tokens is not None and not self._secret.exists():
            write_secret(self._secret, new_token())
        for index, broker in enumerate(brokers):
            broker.directory.mkdir(mode=0o700, exist_ok=True)
            metrics = Address("127.0.0.1", metrics_ports[index]) if metrics_ports else None
            overlay = self._overlay_file(broker)
            self._write(broker.config_path, self._config(broker, overlay, metrics))

    def write_newcomer(self, broker: BrokerProcess, metrics: Address | None) -> None:
        """Write the files of a broker that waits to be appended, in a directory of its own (RS-36)."""
        alone = msgspec.structs.replace(
            self._overlay,
            topology=Topology.of({broker.cell: [broker.name]}, []),
            addresses={broker.name: broker.address},
        )
        refuse_names_of_files(alone)
        if broker.directory.exists():
            raise UsageError(
                f"{broker.directory} exists: a new cell needs a new broker, so choose another name"
            )
        broker.directory.mkdir(mode=0o700)
        self._write(broker.directory / _OVERLAY, alone.to_toml())
        self._newcomers[broker.name] = metrics
        self._write(broker.config_path, self._config(broker, _OVERLAY, metrics, join=True))

    def set_broker_aside(self, broker: BrokerProcess) -> None:
        """Rename the directory of a broker that is in no tree, so that its name is free again."""
        self._newcomers.pop(broker.name, None)
        if broker.directory.exists():
            set_aside(broker.directory, ".stopped")

    def rewrite(self, overlay: OverlayConfig, brokers: Sequence[BrokerProcess]) -> list[Path]:
        """Write the present tree; return the edited files, which are kept as they are."""
        self.kept.clear()
        self._overlay = overlay
        self._write(self.path / _OVERLAY, overlay.to_toml())
        for broker in brokers:
            if broker.name in self._newcomers and overlay.cell_of(broker.name) is not None:
                metrics = self._newcomers.pop(broker.name)
                file = self._overlay_file(broker)
                self._write(broker.config_path, self._config(broker, file, metrics))
                (broker.directory / _OVERLAY).unlink(missing_ok=True)
        return [*self.kept]

    def _refuse_edited_overlay(self) -> None:
        """Refuse options that an edited overlay file contradicts, before any file is written."""
        path = self.path / _OVERLAY
        if self._overwrite or not is_edited(path):
            return
        found = load_overlay(path)
        differing = [
            name
            for name in ("name", "parameters", "addresses")
            if getattr(found, name) != getattr(self._overlay, name)
        ]
        if differing:
            raise UsageError(
                f"{path} was edited, and its {' and '.join(differing)} differ from the options: "
                "start without --topology, --parameter and --retention to use it, or with "
                "--overwrite to have it written again"
            )

    def _write(self, path: Path, text: str) -> None:
        """Write a file, unless it was edited."""
        if not is_edited(path):
            write_generated(path, text)
        elif self._overwrite:
            set_aside(path)
            write_generated(path, text)
        else:
            self.kept.append(path)

    @property
    def _secret(self) -> Path:
        return self.path / _SECRET

    def _overlay_file(self, broker: BrokerProcess) -> str:
        """Return the overlay file for a broker: its own if it has other addresses of its peers."""
        seen = self._placement.addresses_for(broker.name)
        if not seen:
            return f"../{_OVERLAY}"
        addresses = {**self._overlay.addresses, **seen}
        view = msgspec.structs.replace(self._overlay, addresses=addresses)
        self._write(broker.directory / _OVERLAY, view.to_toml())
        return _OVERLAY

    def _config(
        self, broker: BrokerProcess, overlay: str, metrics: Address | None, *, join: bool = False
    ) -> str:
        values: dict[str, object] = {
            "name": broker.name,
            "cell": broker.cell,
            "overlay": overlay,
            "data": "store",
            "listen": str(broker.address),
        }
        if join:
            values["join"] = True
        if metrics is not None:
            values["metrics"] = str(metrics)
        if len(self._overlay.brokers) > 1:
            values["disk_shared_by"] = len(self._overlay.brokers)
        log = msgspec.structs.replace(self._log, file=broker.log_path.name)
        values["log"] = msgspec.to_builtins(log)
        if self._audit is not None:
            directory = str(self._audit.path.absolute())
            chosen = msgspec.structs.replace(self._audit, directory=directory)
            values["audit"] = msgspec.to_builtins(chosen)
        if self._tokens is not None:
            access = AccessOptions(tokens=str(self._tokens), broker_token=str(self._secret))
            values["access"] = msgspec.to_builtins(access)
        return toml_text(values)


def edited_addresses(path: Path, overlay: OverlayConfig) -> dict[BrokerId, Address]:
    """Return the addresses of the brokers whose files were edited, as their files have them."""
    files = {name: path / name / _CONFIG for name, _ in overlay.brokers}
    return {name: listen_address(file) for name, file in files.items() if is_edited(file)}


def refuse_names_of_files(overlay: OverlayConfig) -> None:
    """Refuse a broker whose directory would have the name of a file of the overlay."""
    for name, _ in overlay.brokers:
        if name in {_OVERLAY, _LOCK, _SECRET, SOCKET}:
            raise UsageError(f"a broker cannot be named {name}: a file has that name")
