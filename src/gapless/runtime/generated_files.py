"""Files that ``gapless up`` writes and that operators may edit.

The first line of such a file has a digest of the rest. A file that does not fit its digest, or has
none, was edited: it is kept as it is, or moved aside if the operator wants it to be written again.
"""

from __future__ import annotations

import hashlib
import itertools
from pathlib import Path
from typing import Final

from gapless.core.errors import UsageError

__all__ = ["EDITED_SUFFIX", "is_edited", "set_aside", "write_generated"]

EDITED_SUFFIX: Final = ".edited"
"""The suffix of an edited file that was moved aside."""

_HEAD: Final = "# Written by gapless up, which keeps this file once it is edited. Digest: "


def write_generated(path: Path, text: str) -> None:
    """Write a file with the digest of its text, as a whole or not at all."""
    content = f"{_HEAD}{_digest(text)}\n{text}"
    if path.exists() and path.read_bytes() == content.encode():
        return
    written = path.with_name(path.name + ".new")
    written.write_text(content, encoding="utf-8")
    written.replace(path)


def is_edited(path: Path) -> bool:
    """Whether a file exists and is not as ``gapless up`` wrote it."""
    try:
        head, _, text = path.read_text(encoding="utf-8").partition("\n")
    except FileNotFoundError:
        return False
    except UnicodeDecodeError:
        return True
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    return head != f"{_HEAD}{_digest(text)}"


def set_aside(path: Path, suffix: str = EDITED_SUFFIX) -> None:
    """Rename an edited file, so that another is written in its place; older ones are kept too."""
    first = path.with_name(path.name + suffix)
    others = (first.with_name(f"{first.name}.{number}") for number in itertools.count(2))
    path.rename(next(each for each in itertools.chain((first,), others) if not each.exists()))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
