"""Brokers for tests: real ones, on this computer, stopped and removed after the test.

Nothing here is simulated: brokers listen on free ports of the loopback and store their data in a
temporary directory, so that they can be killed and restarted.

In an asynchronous test::

    async with Overlay("line:3") as overlay:
        async with gapless.connect(overlay.url("b1")) as session:
            ...
        await overlay.kill("b2")  # as a crash would
        await overlay.restart("b2")

In any other test :class:`SyncOverlay` runs the same in a thread of its own:

>>> import gapless
>>> with SyncOverlay() as overlay, gapless.connect_sync(overlay.url()) as session:
...     with session.publisher("quotes") as publisher:
...         position = publisher.publish({"symbol": "IBM", "price": 91.5}, b"...")
...     with session.subscribe("symbol = 'IBM'", start="earliest") as events:
...         events.get().attributes
{'symbol': 'IBM', 'price': 91.5}

With pytest, ``pytest_plugins = ["gapless.testing"]`` in the topmost ``conftest.py`` adds fixtures:
``gapless_overlay`` (a :class:`SyncOverlay` of one broker) and ``gapless_session`` (a blocking
session with it). The marker ``gapless_topology("line:3")`` of a test chooses another overlay.
"""

import contextlib

from gapless.testing.overlay import Overlay, SyncOverlay

__all__ = ["Overlay", "SyncOverlay"]

with contextlib.suppress(ImportError):  # without pytest there are no fixtures
    from gapless.testing.fixtures import gapless_overlay, gapless_session, pytest_configure

    __all__ += ["gapless_overlay", "gapless_session", "pytest_configure"]
