"""The start of the ``gapless`` command: it imports the rest and reports an import that fails.

A setting in the environment may name something that does not exist, which is found on import. The
user gets an error like any other: one block and exit code 2.
"""

from __future__ import annotations

import sys
import traceback

from gapless.cli.output import print_error
from gapless.core.errors import UsageError


def main() -> int:
    """Run the command line and return the exit code."""
    try:
        from gapless.cli.main import main as run
    except UsageError as error:
        if "--debug" in sys.argv:
            traceback.print_exc()
        print_error(str(error), as_json="--json" in sys.argv)
        return 2
    return run()
