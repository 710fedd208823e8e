"""A process that writes rows and prints which are acknowledged, until it ends or is killed.

Arguments: the data directory, the number of writes, the bytes of a row, and the greatest size of a file
(0 for any).
"""

from __future__ import annotations

import os
import resource
import sys
import threading
from pathlib import Path

from gapless.core.effects import Write
from gapless.core.errors import StorageError
from gapless.core.events import Fetched, Written
from gapless.core.ids import PubendId
from gapless.messages.records import AppendRow, IncarnationRecord, LogRow, PutRecord
from gapless.messages.streams import Publication
from gapless.storage import Storage

PUBEND = PubendId("trades")
WINDOW = 3
"""Writes in flight at once, so that some commits have more than one."""


def main() -> int:
    """Write and print the outcome; return 3 if a write failed, 4 if the storage could not be opened."""
    directory, writes, size, file_bytes = sys.argv[1], *map(int, sys.argv[2:])
    if file_bytes:
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, file_bytes))
    free_slots = threading.Semaphore(WINDOW)
    failed = threading.Event()

    def done(events: list[Written | Fetched]) -> None:
        # one system call, so that a kill cannot divide a line
        write_ids = [event.write_id for event in events if isinstance(event, Written)]
        os.write(1, "".join(f"{write_id}\n" for write_id in write_ids).encode())
        free_slots.release(len(events))

    def fail(error: StorageError) -> None:
        os.write(1, f"failed {type(error).__name__}: {error}\n".encode())
        failed.set()
        free_slots.release()

    try:
        storage = Storage.open(Path(directory), on_done=done, on_failure=fail)
    except StorageError as error:
        os.write(1, f"not opened: {error}\n".encode())
        return 4
    for tick in range(1, writes + 1):
        free_slots.acquire()
        if failed.is_set():
            break
        event = Publication(tick, "p", tick, {}, b"x" * size)
        row = LogRow(PUBEND, tick, tick, 1, 0, 0, 0, (event,))
        storage.write(Write(tick, (AppendRow(row), PutRecord(IncarnationRecord(tick)))))
    storage.close()
    return 3 if failed.is_set() else 0


if __name__ == "__main__":
    sys.exit(main())
