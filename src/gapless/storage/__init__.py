"""The data directory of a broker: its records and the logs of its pubends, in one SQLite database.

Theory of operation
-------------------
:class:`Storage` (:mod:`.storage`) belongs to one running broker. ``write`` and ``fetch`` only put
work into a queue, so they never block. The **writer thread** takes all queued writes and reduces
them to their outcome (:mod:`.write_group`: the last of the records with one key, the highest of the
trims of one log). It applies the outcome in one transaction and reports all write ids in one call
after COMMIT has returned (group commit). The **reader thread** has its own connection. In WAL mode
it reads a snapshot and neither waits for the writer nor delays it (:mod:`.reading`). The caller
encodes rows, so that their size is known at once. The writer does everything else with as few
statements as possible, because every call into SQLite releases the interpreter lock, and a busy
event loop delays its return.

For a single event, two threads that wake each other take as long as the sync. So a caller that
gathers writes may flush them with ``here``, which commits in the caller's own thread. That happens
while the writes are small, the writer is idle and commits are fast (:mod:`.inline_commits`). With a
slow or stalled disk the writer thread commits.

A trim is one small write: it moves the mark below which rows do not count. The rows are deleted
later, some with every commit and the rest when the writer is idle (:mod:`.space_reclaim`), so a
trim of many gigabytes delays nothing. New rows reuse free space. When a quarter of the file is
free, it is returned to the file system, a few pages at a time. Deleted rows are not overwritten: on a
full disk there is no space for that.

Invariants
----------
- A write id is reported only when its write is on disk, in the order of the requests. After the
  first failed write nothing is reported any more: the failure is reported once, and the broker must
  stop (R27). A write may survive unreported; a reported write never fails to survive.
- A fetch returns only rows whose ``Written`` was reported before it.
- What is recovered after a crash is copied to the database and synced before it is read. Otherwise
  a row that was only in the page cache of a machine whose sync failed would count as durable.
- Everything that is read is checked. Every row and record has a checksum over its key and its
  content, which detects a changed or moved row.
- A missing row is detected too. Each row has the end of the row before it. The mark of a log has
  the end of its last row and the tick up to which it was trimmed. So corruption is never taken for
  silence.
- Corruption refuses the pubend or the subscription that it belongs to, with a reason. The broker is
  refused only if the owner is unknown, or if the broker's own records are corrupt. If a corrupt
  page hides rows, the links between the rows of a log show it. Records have no such links, so
  SQLite checks the pages of their table when they are loaded.
- Corrupt data is never repaired. It is deleted only if the broker trims or deletes it.
- One process has a data directory at a time (:mod:`.lock`).

The file format
---------------
The data directory has ``broker.lock`` with the process that uses it, ``reserve``, and ``broker.db`` (with
``-wal`` and ``-shm`` while in use), an SQLite database in WAL mode, ``synchronous=FULL``,
``auto_vacuum=INCREMENTAL``, pages of 8 KiB. ``application_id`` identifies gapless, ``user_version``
is the format. Bodies are msgpack, checksums CRC-32 (:mod:`.codec`).

- ``records(key, body, checksum)``: the key as a JSON list of texts, the body a record with its tag.
- ``logs(pubend, trimmed, last, checksum)``: the mark of each log; ``pubend`` is
  ``name#incarnation``.
- ``log(pubend, first, last, previous, events, frame, checksum)``: the rows; ``previous`` is the end
  of the row before, -1 if there was none.

As measured, an ordinary table with an index on (pubend, first) takes large rows a sixth faster than
a table WITHOUT ROWID, which suits small ones, and small rows as fast. In a table WITHOUT ROWID a
row above a quarter of a page moves to a page of its own with every change. The record of a busy
publisher is as large: with such a table a single event wrote 6.8 pages, without it 4.4. Every
commit writes whole pages, so small pages are better for single events and large ones for batches:
with pages of 4, 8 and 16 KiB the writer took 1.9, 1.55 and 1.35 us an event of a batch, and a
single commit took 214, 230 and 260 us of processor time (measured by hand; a data directory keeps
its page size). ``auto_vacuum`` costs some percent. CRC-32 takes a fifth of the time of the cheapest
cryptographic sum. It detects corruption, not manipulation.

The writer checkpoints the WAL about every 4 MiB, after a commit was reported, so that no commit
waits for it (:mod:`.wal`). If readers prevent its restart until it is large (``WAL_BYTES_MAX``),
the writer delays the fetches for one checkpoint and truncates it.

:func:`verify`, :func:`list_logs` and :func:`export` (:mod:`.inspection`) are for operators. They
only read, and they work while the broker runs. :func:`open_stopped` (:mod:`.stopped`) changes the
data directory of a broker that does not run. A running broker keeps some space in reserve for it
(:mod:`.reserve`).
"""

from __future__ import annotations

from gapless.storage.inspection import (
    LogSummary,
    LogVerification,
    VerificationReport,
    export,
    list_logs,
    verify,
)
from gapless.storage.loading import Loaded
from gapless.storage.stopped import StoppedStore, open_stopped
from gapless.storage.storage import Statistics, Storage

__all__ = [
    "Loaded",
    "LogSummary",
    "LogVerification",
    "Statistics",
    "StoppedStore",
    "Storage",
    "VerificationReport",
    "export",
    "list_logs",
    "open_stopped",
    "verify",
]
