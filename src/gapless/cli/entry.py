"""The start of the ``gapless`` command: it imports the rest and reports an import that fails.

A setting in the environment may name something that does not exist, which is found on import. The
user gets an error like any other: one block and exit code 2. Ctrl-C ends an import as it ends a
command. So this module imports hardly anything itself.
"""

from __future__ import annotations

import sys

from gapless.core.errors import UsageError

_EXIT_WRONG_INPUT = 2
_EXIT_INTERRUPTED = 130


def main() -> int:
    """Run the command line and return the exit code."""
    try:
        from gapless.cli.main import main as run
    except UsageError as error:
        _report(error)
        return _EXIT_WRONG_INPUT
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        return _EXIT_INTERRUPTED
    return run()


def _report(error: UsageError) -> None:
    import traceback

    from gapless.cli.output import print_error

    if "--debug" in sys.argv:
        traceback.print_exception(error)
    print_error(str(error), as_json="--json" in sys.argv)
