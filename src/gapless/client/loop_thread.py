"""An event loop in a thread of its own, for programs that have none."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import CancelledError, Future
from typing import Any, TypeVar

from gapless.core.errors import ClosedError

__all__ = ["EventLoopThread"]

T = TypeVar("T")


class EventLoopThread:
    """Runs coroutines in one background thread, for calls from any thread.

    The thread does not keep the program alive. A caller that is interrupted while it waits, as by
    Ctrl-C, cancels its coroutine.
    """

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="gapless-client", daemon=True)
        # a started thread does not run its loop yet, and a loop that does not run counts as closed
        running = threading.Event()
        self._loop.call_soon(running.set)
        self._thread.start()
        running.wait()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.run_until_complete(self._give_up())
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()

    async def _give_up(self) -> None:
        """Cancel the remaining tasks: other threads may wait for them."""
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        await asyncio.sleep(0)  # the callbacks of the waiters run

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start a coroutine; return its future."""
        if threading.current_thread() is self._thread:
            work.close()
            raise ClosedError("the synchronous API was called from its own event loop")
        if self._loop.is_closed() or not self._loop.is_running():
            work.close()
            raise ClosedError("the session is closed; connect again")
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine and wait for its result."""
        future = self.start(work)
        try:
            return future.result()
        except CancelledError:
            raise ClosedError("the session was closed meanwhile") from None
        except BaseException:
            future.cancel()  # does nothing if it is done
            raise

    def stop(self) -> None:
        """End the loop and wait for its thread."""
        if self._loop.is_running():
            self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
