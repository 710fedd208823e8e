"""Settings of Hypothesis for the whole suite.

``default`` is deterministic: the same examples in every run, no time limit on one example, no
database of past failures, so that a failing test fails again everywhere. ``explore`` draws new
examples in every run; choose it with ``GAPLESS_PROFILE=explore``.

``GAPLESS_CASES`` makes all properties longer or shorter, see ``tests.cases``. A test that needs another
number of examples uses ``scaled``, so that the number changes with the rest.
"""

from __future__ import annotations

import os
import signal

from hypothesis import HealthCheck, settings

from tests.cases import scaled

EXAMPLES = scaled(200)

# A slow example on a loaded machine is no failure.
_PATIENT = [HealthCheck.too_slow, HealthCheck.data_too_large]

settings.register_profile(
    "default",
    max_examples=EXAMPLES,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=_PATIENT,
)
settings.register_profile(
    "explore",
    max_examples=EXAMPLES,
    derandomize=False,
    deadline=None,
    print_blob=True,
    suppress_health_check=_PATIENT,
)
settings.load_profile(os.environ.get("GAPLESS_PROFILE", "default"))

# A shell starts background processes with Ctrl-C ignored, and their children inherit that. Tests
# interrupt their children.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A Java program of a test is short: one quick compiler and one thread for the heap cost less.
os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
