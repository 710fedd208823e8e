"""The hierarchy of errors, and the public module that exports it."""

from __future__ import annotations

import inspect

from gapless import errors
from gapless.core import errors as tree


def test_every_error_can_be_imported_from_the_public_module() -> None:
    every = {
        name
        for name, each in inspect.getmembers(tree, inspect.isclass)
        if issubclass(each, tree.GaplessError | Warning) and each.__module__ == tree.__name__
    }
    assert every == set(errors.__all__)
    assert all(getattr(errors, name) is getattr(tree, name) for name in every)
