"""``gapless protocol``: every message between a client and a broker, from the structs themselves.

``docs/protocol.md`` is its output; a test checks that.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator
from enum import IntEnum
from functools import cache
from types import ModuleType
from typing import Any, get_args

import msgspec

from gapless.cli.output import print_json
from gapless.core.limits import FRAME_BYTES_MAX
from gapless.messages import clients, operating, overlay, reshape, streams
from gapless.wire import codec, frames, handshake

__all__ = ["Field", "MessageDescription", "document", "messages", "run"]

_HEAD = """\
# The protocol between clients and brokers

Made from the sources by `gapless protocol > docs/protocol.md`; do not edit it.

A connection carries frames: a length of {header} bytes, most significant first, then a body of at most
{bytes:,} bytes, in [msgpack](https://msgpack.org). The side that dials sends `Connect`, the other
answers `Connected`, or `Disconnect` with the reason. After that a client sends requests and receives
notices. Either side sends `KeepAlive` when it has nothing else to send, and `Disconnect` before it closes.

A message is an array: its name, then its fields in the order given here. Fields at the end that have
a default may be omitted, and a reader skips those it does not know, so newer and older sides
understand each other. An answer has the number of its request; `Refused` may answer any. A request with
a wrong field is refused if its name and its number can be read. Any other malformed frame closes the
connection.
"""

_IDS = """\
A `PubendId` is an array of name and incarnation, a `ShbId` one of broker and cell. A `Tick` is a
64-bit integer: microseconds, as a position in a stream. A `Value` is a bool, a 64-bit integer, a
float or a text. A `Count` is an integer from 0 to 2^63 - 1, a `Signed` one from -2^63. A client sends numbers up
to 2^61 (`ClientCount`) or from -2^62 to 2^62 (`ClientSigned`). A `PartTuple` is an array of a partition, the
attempt of it that is committed, and its number of chunks. A number out of its range, like any other malformed field,
ends the connection with `PROTOCOL_ERROR`.
"""


class Field(msgspec.Struct, frozen=True):
    """One field of a message."""

    name: str
    type: str
    default: str | None
    about: str


class MessageDescription(msgspec.Struct, frozen=True):
    """One message, or a part of one."""

    name: str
    about: str
    fields: tuple[Field, ...]


def messages(kinds: tuple[Any, ...]) -> list[MessageDescription]:
    """Return the descriptions of some structs."""
    return [_message(each) for each in kinds]


def _message(kind: Any) -> MessageDescription:
    annotations, notes = _declared(inspect.getmodule(kind), kind.__name__)
    fields = tuple(
        Field(each.name, annotations[each.name], _default(each), notes.get(each.name, ""))
        for each in msgspec.structs.fields(kind)
    )
    return MessageDescription(kind.__name__, _flat(inspect.getdoc(kind) or ""), fields)


@cache
def _classes(module: ModuleType | None) -> dict[str, ast.ClassDef]:
    assert module is not None
    tree = ast.parse(inspect.getsource(module))
    return {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}


def _declared(module: ModuleType | None, name: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return the types of a struct's fields as they are written, and the docstrings below them."""
    annotations: dict[str, str] = {}
    notes: dict[str, str] = {}
    last = ""
    for node in _classes(module)[name].body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            last = node.target.id
            annotations[last] = ast.unparse(node.annotation)
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            last = node.targets[0].id
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and last:
            notes[last] = _flat(str(node.value.value))
    return annotations, notes


def _flat(text: str) -> str:
    """Return a docstring as one paragraph, for readers without the sources."""
    text = textwrap.dedent(text).split("\n\n>>>")[0]
    text = re.sub(r":[a-z]+:`[~.]?([^`]*)`", r"`\1`", text).replace("``", "`")
    text = re.sub(r" \((?:[A-Z]{1,2}\d|R\d|section )[^)]*\)", "", text)
    return " ".join(text.split())


def _default(field: Any) -> str | None:
    if field.required:
        return None
    if field.default is msgspec.NODEFAULT:
        return repr(field.default_factory())
    default = field.default
    if isinstance(default, msgspec.Struct):
        return f"{type(default).__name__}()"
    return default.name if isinstance(default, IntEnum) else repr(default)


def _sections() -> Iterator[tuple[str, tuple[Any, ...]]]:
    aside = {handshake.KeepAlive, handshake.Disconnect}
    yield "Handshake", (*get_args(handshake.Handshake), handshake.KeepAlive)
    for title, union in (("Requests", codec.Request), ("Notices", codec.Notice)):
        yield title, tuple(each for each in get_args(union) if each not in aside)
    parts = (
        *(clients.StartPoint, clients.PendingStart, streams.Publication, overlay.Partition),
        *(each for name in operating.__all__ if _is_part(each := getattr(operating, name))),
        *(reshape.OperationId, reshape.OperationRequestId, reshape.ExpectedCell),
        *(overlay.CellMember, overlay.Term, overlay.ShapeVersion),
    )
    yield "Parts of messages", parts


def _is_part(kind: Any) -> bool:
    return kind.__struct_config__.tag is None


_ENUMS = (
    *(handshake.Role, handshake.DisconnectReason, overlay.Quality),
    *(reshape.OperationKind, reshape.OperationStatus, reshape.RefusalReason, overlay.CellRole),
    *(clients.Order, clients.StartKind, clients.RefusalCause, streams.ReadForm),
)


def document() -> str:
    """Return the whole page."""
    parts = [_HEAD.format(header=frames.HEADER_BYTES, bytes=FRAME_BYTES_MAX), _IDS]
    for title, kinds in _sections():
        parts.append(f"## {title}\n")
        parts += [_shown(each) for each in messages(kinds)]
    parts.append("## Numbers\n")
    parts += [_numbers(each) for each in _ENUMS]
    return "\n".join(parts)


def _shown(message: MessageDescription) -> str:
    lines = [f"### `{message.name}`\n", f"{message.about}\n"]
    if message.fields:
        lines += ["| field | type | default | |", "|---|---|---|---|"]
    for each in message.fields:
        default = "" if each.default is None else f"`{each.default}`"
        kind = each.type.replace("|", "\\|")
        lines.append(f"| `{each.name}` | `{kind}` | {default} | {each.about} |")
    return "\n".join(lines).rstrip() + "\n"


def _numbers(kind: type[IntEnum]) -> str:
    _, notes = _declared(inspect.getmodule(kind), kind.__name__)
    lines = [f"### `{kind.__name__}`\n", f"{_flat(inspect.getdoc(kind) or '')}\n"]
    lines += ["| number | name | |", "|---|---|---|"]
    lines += [f"| {each.value} | `{each.name}` | {notes.get(each.name, '')} |" for each in kind]
    return "\n".join(lines) + "\n"


def run(*, as_json: bool) -> None:
    """Print the page, or the same as JSON."""
    if as_json:
        print_json({title.lower(): messages(kinds) for title, kinds in _sections()})
    else:
        sys.stdout.write(document())
