"""A network of namespaces: every broker has a network stack of its own.

The namespace of this process is the hub, where clients are. Each broker has a namespace and a cable
(veth) to the hub, which forwards between them. A rule of the hub cuts one direction: it drops
packets from one address to another silently, and what TCP repeats gets through when the rule is
removed.

Everything is inside namespaces in which this process is started (:func:`enter`), with a mount
namespace for their names. So it changes nothing outside, needs no clean-up, and ends with its last
process. The addresses are of the range for tests of networks (RFC 2544) and lead nowhere outside.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NoReturn

import msgspec

from gapless.core.address import PORT, Address
from gapless.core.errors import GaplessError
from gapless.core.ids import BrokerId
from gapless.runtime.overlay_config import OverlayConfig

__all__ = ["Namespaces", "enter", "is_inside", "why_not"]

_INSIDE: Final = "GAPLESS_CHAOS_INSIDE"
"""Set in the environment of a process that has namespaces of its own."""

_PREPARE: Final = (
    "mount -t tmpfs tmpfs /run && mkdir /run/netns && ip link set lo up"
    " && echo 1 > /proc/sys/net/ipv4/ip_forward"
)
_TRY: Final = (
    f"{_PREPARE} && ip netns add probe && ip link add v1 type veth peer name eth0 netns probe"
    " && ip rule add from 198.18.1.2 to 198.18.2.2 blackhole && nsenter --net=/run/netns/probe true"
)
_TRY_S: Final = 20.0


def _unshared(*command: str) -> list[str]:
    """Return a command that runs another in namespaces of its own."""
    as_root = [] if os.geteuid() == 0 else ["--map-root-user"]
    return ["unshare", *as_root, "--net", "--mount", "--", *command]


def why_not() -> str | None:
    """Return why namespaces cannot be used here; None if they can."""
    try:
        tried = subprocess.run(  # noqa: S603  # our own words
            _unshared("sh", "-c", _TRY), capture_output=True, text=True, timeout=_TRY_S, check=False
        )
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)
    if tried.returncode == 0:
        return None
    lines = (tried.stderr or tried.stdout).strip().splitlines()
    return lines[-1] if lines else f"unshare ended with {tried.returncode}"


def is_inside() -> bool:
    """Return whether this process has namespaces of its own."""
    return bool(os.environ.get(_INSIDE))


def enter(arguments: Sequence[str]) -> NoReturn:
    """Start this program again, with these arguments, in namespaces of its own."""
    sys.stdout.flush()
    os.environ[_INSIDE] = "1"
    again = (sys.executable, "-m", "gapless", *arguments)
    command = _unshared("sh", "-c", f'{_PREPARE} && exec "$@"', "sh", *again)
    os.execvp(command[0], command)  # noqa: S606  # without a shell, and our own words


class Namespaces:
    """The namespaces of brokers, and the cables between them; see
    :mod:`gapless_lab.chaos.networks`.
    """

    def __init__(self) -> None:
        self._hosts: dict[BrokerId, str] = {}

    async def start(self, overlay: OverlayConfig) -> OverlayConfig:
        """Create a namespace and a cable to the hub for every broker."""
        assert is_inside(), "namespaces are made in those of this process only"
        for number, (broker, _) in enumerate(overlay.brokers, start=1):
            self._hosts[broker] = f"198.18.{number}.2"
            await _add_namespace(broker, number)
        addresses = {broker: Address(host, PORT) for broker, host in self._hosts.items()}
        return msgspec.structs.replace(overlay, addresses=addresses)

    def command(self, broker: BrokerId) -> Sequence[str]:
        """Run a broker in its namespace."""
        return ("nsenter", f"--net=/run/netns/{broker}", "--")

    def addresses_for(self, broker: BrokerId) -> Mapping[BrokerId, Address]:
        """Return nothing: every broker is reached at its own address."""
        del broker
        return {}

    async def cut(self, links: Sequence[tuple[BrokerId, BrokerId]]) -> None:
        """Cut the direction from the first of each pair to the second."""
        await _ip(f"rule add {self._rule(*link)}" for link in links)

    async def heal(self, links: Sequence[tuple[BrokerId, BrokerId]]) -> None:
        """Heal the directions."""
        await _ip(f"rule del {self._rule(*link)}" for link in links)

    def _rule(self, source: BrokerId, target: BrokerId) -> str:
        return f"from {self._hosts[source]} to {self._hosts[target]} blackhole"

    async def stop(self) -> None:
        """Do nothing: the namespaces end with this process."""


async def _add_namespace(broker: BrokerId, number: int) -> None:
    """Create a broker's namespace, and a cable from there to the hub."""
    await _ip(
        [
            f"netns add {broker}",
            f"link add v{number} type veth peer name eth0 netns {broker}",
            f"address add 198.18.{number}.1/24 dev v{number}",
            f"link set v{number} up",
        ]
    )
    await _ip(
        [
            "link set lo up",
            f"address add 198.18.{number}.2/24 dev eth0",
            "link set eth0 up",
            f"route add default via 198.18.{number}.1",
        ],
        *("-n", broker),
    )


async def _ip(commands: Iterable[str], *options: str) -> None:
    """Run commands of ``ip`` in one process, so that many cuts happen at nearly the same time."""
    process = await asyncio.create_subprocess_exec(
        *("ip", *options, "-batch", "-"),
        stdin=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    _, output = await process.communicate("\n".join(commands).encode())
    if process.returncode:
        raise GaplessError(f"ip: {output.decode(errors='replace').strip()}")
