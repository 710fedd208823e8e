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


def test_the_text_of_an_error_has_no_control_characters_of_names() -> None:
    name = "quotes\x1b[2J\x9b\u202e"
    for error in (
        tree.GapError(f"{name}\nfake", 1, 2),
        tree.RefusedError(f"there is no pubend {name}"),
        tree.WrongBrokerError(f"not here: {name}", name),
        tree.StorageError(f"{name} cannot be read"),
        tree.reworded(tree.RefusedError("no"), name),
    ):
        assert str(error).isprintable(), error
        assert r"quotes\x1b[2J\x9b\u202e" in str(error)
    assert str(tree.UsageError("two\n  lines")) == "two\n  lines"
