"""Brokers for tests: real ones, on this computer, gone when the test is over.

Nothing here is simulated: brokers listen on free ports of the loopback and keep what they must not
forget in a temporary directory, so that they can be killed and started again.

In an asynchronous test::

    async with Overlay("line:3") as overlay:
        async with gapless.connect(overlay.url("b1")) as session:
            ...
        await overlay.kill("b2")  # as a crash would
        await overlay.restart("b2")

In any other test :class:`SyncOverlay` does the same from a thread of its own:

>>> import gapless
>>> with SyncOverlay() as overlay, gapless.connect_sync(overlay.url()) as session:
...     with session.publisher("quotes") as publisher:
...         position = publisher.publish({"symbol": "IBM", "price": 91.5}, b"...")
...     with session.subscribe("symbol = 'IBM'", start="earliest") as events:
...         events.get().attributes
{'symbol': 'IBM', 'price': 91.5}

With pytest, ``pytest_plugins = ["gapless.testing"]`` in the topmost ``conftest.py`` brings fixtures:
``gapless_overlay`` (a :class:`SyncOverlay` of one broker) and ``gapless_session`` (a session with it,
whose calls wait). A test that is marked ``gapless_topology("line:3")`` gets that one.
"""

import contextlib

from gapless.testing.overlay import Overlay, SyncOverlay

__all__ = ["Overlay", "SyncOverlay"]

with contextlib.suppress(ImportError):  # without pytest there are no fixtures
    from gapless.testing.fixtures import gapless_overlay, gapless_session, pytest_configure

    __all__ += ["gapless_overlay", "gapless_session", "pytest_configure"]
