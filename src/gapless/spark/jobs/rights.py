"""Rights that an auditor states: who may publish and who may receive what.

A file in TOML. A rule names a principal, a group or everybody (``*``), a right, and a filter;
without a filter it applies to all events::

    allow = [
        ["feed", "publish"],
        ["traders", "subscribe", "exchange = 'NYSE'"],
        ["*", "subscribe", "public = TRUE"],
    ]
    deny = [["bob", "subscribe", "symbol = 'IBM'"]]

    [groups]
    traders = ["alice", "bob"]

An event that no rule allows is not allowed. An event that a rule denies is not allowed either,
whatever another rule allows. A client without a token has no principal; only the rules for
everybody apply to it. Brokers do not know these rules: an audit applies them to the records of
brokers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, Literal, NamedTuple

import msgspec

from gapless.content.filter import Filter
from gapless.core.errors import FilterError, UsageError, shortened

__all__ = ["EVERYBODY", "CompiledRights", "Right", "Rights", "load_rights"]

EVERYBODY: Final = "*"

Right = Literal["publish", "subscribe"]
_RIGHTS: Final[tuple[Right, ...]] = ("publish", "subscribe")


class _RightsFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The keys of the file."""

    allow: list[list[str]] = []
    deny: list[list[str]] = []
    groups: dict[str, list[str]] = {}


class AccessRule(NamedTuple):
    """What a principal may do, or may not."""

    principal: str
    right: Right
    filter: str


class _Lists(NamedTuple):
    """The filters of rules for one principal and one right, by index."""

    allowed: frozenset[int]
    denied: frozenset[int]


class CompiledRights(msgspec.Struct, frozen=True):
    """Rules in the form for tasks."""

    texts: tuple[str, ...]
    """Filters, each once."""
    named: dict[tuple[str, str], _Lists]
    """By principal and right, for all principals that a rule or a group names."""
    others: dict[str, _Lists]
    """By right, for all others."""

    def allow(self, principal: str, right: Right, matching: Iterable[int]) -> bool:
        """Return whether an event is allowed, by the filters that match it."""
        lists = self.named.get((principal, right)) or self.others[right]
        return not lists.allowed.isdisjoint(matching) and lists.denied.isdisjoint(matching)


class Rights(msgspec.Struct, frozen=True):
    """Rules, checked.

    >>> rights = Rights.of([["alice", "publish"]], [["alice", "publish", "secret = TRUE"]])
    >>> rights.count
    2
    """

    allowing: tuple[AccessRule, ...]
    denying: tuple[AccessRule, ...]
    groups: dict[str, tuple[str, ...]]

    @classmethod
    def of(
        cls,
        allow: Iterable[Sequence[str]] = (),
        deny: Iterable[Sequence[str]] = (),
        groups: Mapping[str, Iterable[str]] | None = None,
    ) -> Rights:
        """Return checked rules; a UsageError names the invalid one."""
        members = {name: tuple(each) for name, each in (groups or {}).items()}
        for name, inside in members.items():
            wrong = next((each for each in inside if each in members or each == EVERYBODY), None)
            if name == EVERYBODY or wrong is not None:
                raise UsageError(
                    f"the group {shortened(name)} has {shortened(wrong or name)}: a group has a name of its "
                    "own, and its members are principals"
                )
        return cls(
            tuple(_rule("allow", index, each) for index, each in enumerate(allow)),
            tuple(_rule("deny", place, each) for place, each in enumerate(deny)),
            members,
        )

    @property
    def count(self) -> int:
        """The number of rules."""
        return len(self.allowing) + len(self.denying)

    def compiled_rights(self) -> CompiledRights:
        """Return the rules in the form for tasks."""
        rules = (*self.allowing, *self.denying)
        indices = {text: index for index, text in enumerate(dict.fromkeys(r.filter for r in rules))}

        def lists(names: frozenset[str], right: Right) -> _Lists:
            def of(some: tuple[AccessRule, ...]) -> frozenset[int]:
                mine = (each for each in some if each.principal in names and each.right == right)
                return frozenset(indices[each.filter] for each in mine)

            return _Lists(of(self.allowing), of(self.denying))

        everybody = frozenset({EVERYBODY})
        known = {rule.principal for rule in rules} - everybody - self.groups.keys()
        known.update(each for inside in self.groups.values() for each in inside)
        named: dict[tuple[str, str], _Lists] = {}
        for principal in known:
            groups = {name for name, inside in self.groups.items() if principal in inside}
            for right in _RIGHTS:
                named[principal, right] = lists(everybody | groups | {principal}, right)
        others: dict[str, _Lists] = {right: lists(everybody, right) for right in _RIGHTS}
        return CompiledRights(tuple(indices), named, others)


def _rule(kind: str, index: int, given: Sequence[str]) -> AccessRule:
    where = f"rule {index + 1} of {kind}"
    if isinstance(given, str) or not 2 <= len(given) <= 3:
        raise UsageError(f'{where} must be ["principal", "publish" or "subscribe", "filter"]')
    principal, right = given[0], next((each for each in _RIGHTS if each == given[1]), None)
    if not principal:
        raise UsageError(f"{where} names no principal; for everybody write {EVERYBODY!r}")
    if right is None:
        raise UsageError(f"{where}: {shortened(given[1])!r} is neither 'publish' nor 'subscribe'")
    try:
        return AccessRule(principal, right, str(Filter(given[2] if len(given) == 3 else "TRUE")))
    except FilterError as error:
        raise UsageError(f"{where}: {error}") from error


def load_rights(path: str | Path) -> Rights:
    """Read a file of rules."""
    from gapless.runtime.toml import read_toml  # tasks do not need it

    found = read_toml(Path(path), _RightsFile)
    try:
        return Rights.of(found.allow, found.deny, found.groups)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from error
