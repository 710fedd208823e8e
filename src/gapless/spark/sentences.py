"""Errors of the connector as users of Spark see them: the sentence first, without a traceback.

A worker of Spark sends the text of an error to the driver, and puts the traceback before the sentence
unless SPARK_HIDE_TRACEBACK is in its environment. For an error of gapless the sentence tells what is
wrong, so the traceback goes to the log at DEBUG. The variable is set while such an error exists, because
the worker may run other code later.
"""

from __future__ import annotations

import functools
import inspect
import logging
import os
import traceback
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Final, ParamSpec, TypeVar, cast

from gapless.core.errors import GaplessError

__all__ = ["HIDE_TRACEBACK", "sentence_first"]

HIDE_TRACEBACK: Final = "SPARK_HIDE_TRACEBACK"

_LOG: Final = logging.getLogger("gapless.spark")

P = ParamSpec("P")
T = TypeVar("T")


def sentence_first(method: Callable[P, T]) -> Callable[P, T]:
    """Let an error of gapless that leaves a method, or its generator, begin with its sentence."""
    if inspect.isgeneratorfunction(method):

        @functools.wraps(method)
        def yielding(*args: P.args, **kwargs: P.kwargs) -> Iterator[Any]:
            try:
                yield from cast("Callable[P, Iterator[Any]]", method)(*args, **kwargs)
            except GaplessError as error:
                _hide_traceback(error)
                raise

        return cast("Callable[P, T]", yielding)

    @functools.wraps(method)
    def calling(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return method(*args, **kwargs)
        except GaplessError as error:
            _hide_traceback(error)
            raise

    return calling


def _hide_traceback(error: GaplessError) -> None:
    """Hide the traceback as long as the error exists."""
    if _LOG.isEnabledFor(logging.DEBUG):  # as a text: a kept record would keep the error
        _LOG.debug("an error of gapless ends a call of Spark\n%s", traceback.format_exc())
    if HIDE_TRACEBACK not in os.environ:
        os.environ[HIDE_TRACEBACK] = "1"
        weakref.finalize(error, os.environ.pop, HIDE_TRACEBACK, None)
