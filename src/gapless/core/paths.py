"""Paths of files in configuration files and options."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec

__all__ = ["PathText"]

PathText: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"^[^\x00]*$")]
"""A path. No file system allows a zero character, and Python refuses it with an error of its own."""
