"""``python -m gapless.runtime FILE``: one broker, as the supervisor starts it."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from gapless.core.errors import GaplessError
from gapless.runtime.process import EXIT_WRONG_INPUT, run_broker


def main() -> int:
    """Run a broker and return the exit code."""
    parser = argparse.ArgumentParser(prog="gapless.runtime", description=__doc__)
    parser.add_argument("config", type=Path)
    parser.add_argument("--supervised", action="store_true")
    parser.add_argument("--restarts", type=int, default=0)
    given = parser.parse_args()
    try:
        return run_broker(given.config, supervised=given.supervised, restarts=given.restarts)
    except GaplessError as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_WRONG_INPUT


if __name__ == "__main__":
    sys.exit(main())
