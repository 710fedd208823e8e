"""What a broker keeps on disk: its records and the logs of its pubends, in one SQLite database.

Theory of operation
-------------------
:class:`Storage` (:mod:`.storage`) belongs to one running broker. ``write`` and ``fetch`` only put
work into a queue, so they never block. The **writer thread** takes all writes that are queued,
reduces them to what is left of them (:mod:`.write_group`: of many records with one key the last, of many
trims the highest), applies that in one transaction, and only when COMMIT has returned reports all
their tickets in one call (group commit). The **reader thread** has its own connection: in WAL mode
it reads a snapshot and neither waits for the writer nor makes it wait (:mod:`.reading`). Rows are
encoded by who asks, so that their size is known at once; all else is done by the writer, in as
few statements as there can be, because every call into SQLite gives up the interpreter and has to
wait to get it back from a busy event loop.

A lone event would pay for two threads that wake each other, which takes as long as its sync. So who
gathers writes and flushes them may allow that they are made durable ``here``, in its own thread. That
is done while they are small, the writer is at rest and commits are quick (:mod:`.inline_commits`); a disk that is
slow, or stalls, gets the writer thread back.

A trim is one small write: it moves the mark below which rows do not count. The rows are deleted
later, some with every commit and the rest when nobody writes (:mod:`.space_reclaim`), so a trim of many
gigabytes holds nobody up. Space that is free is used again; when a quarter of the file is free, it
is given back to the file system, a few pages at a time.

Invariants
----------
- A ticket is reported only when its write is on disk, in the order of asking. After the first
  failed write nothing is reported any more: the failure is told once, and the broker must stop
  (R27). A write may survive without its ticket; a ticket never without its write.
- What a fetch shows was reported before it: a broker never sees a row earlier than its ``Written``.
- What was recovered after a crash is copied to the database and synced before anyone reads it. A
  row that was only in the memory of a machine whose sync failed would else count as durable.
- Everything that is read is checked: every row and record has a checksum over its key and its
  content, so one that was changed or moved is found.
- A row that vanished is found too. Each row names the end of the row before it; the mark of a log
  names the end of its last row and how far it was trimmed. So silence is never made up from damage.
- Damage refuses the pubend or the subscription it belongs to, with a sentence that says what was
  found. Only where that cannot be told, or the broker's life is damaged, the broker is refused.
  Where a damaged page hides rows, the joints of a log tell; for records, which have no joints,
  SQLite checks the pages of their table when they are loaded.
- Nothing damaged is ever repaired, nor deleted, unless the broker trims or erases it.
- One process has a data directory at a time (:mod:`.lock`).

The file format
---------------
The data directory has ``broker.lock`` with the process that uses it, and ``broker.db`` (with
``-wal`` and ``-shm`` while in use), an SQLite database in WAL mode, ``synchronous=FULL``,
``auto_vacuum=INCREMENTAL``, pages of 8 KiB; ``application_id`` says that it is ours and
``user_version`` in which format. Bodies are msgpack, checksums CRC-32 (:mod:`.codec`).

- ``records(key, body, checksum)``: the key as a JSON list of texts, the body a record with its tag.
- ``logs(pubend, trimmed, last, checksum)``: the mark of each log; ``pubend`` is ``name#incarnation``.
- ``log(pubend, first, last, previous, events, frame, checksum)``: the rows; ``previous`` is the end
  of the row before, -1 if there was none.

As measured, an ordinary table with an index on (pubend, first) takes large rows a sixth faster than
a table WITHOUT ROWID, which wants small ones, and small rows as fast. In such a table a row above a
quarter of a page moves to a page of its own, anew with every change: the record of a busy publisher is
as large, and a lone event wrote 6.8 pages where it now writes 4.4 (data directories that were made
before keep their tables, and both are read and written in the same way). Every commit writes whole
pages, so small ones are better for lone events and large ones for batches: with pages of 4, 8 and 16 KiB
the writer took 1.9, 1.55 and 1.35 us an event of a batch, and a lone commit 214, 230 and 260 us of
processor (by hand; a data directory keeps the size that it was made with). ``auto_vacuum`` costs some
percent. CRC-32 takes a fifth of the time of the cheapest cryptographic sum; it finds damage, not malice:
who can write the file can also compute the sum.

The WAL is copied back every 4 MiB or so, by the writer and after a commit was reported, so
that no commit waits for it (:mod:`.wal`). If readers kept it from starting over until it is large
(``WAL_BYTES_MAX``), the writer holds the fetches up for one checkpoint and cuts it.

For people who look at a data directory there are :func:`verify`, :func:`list_logs` and
:func:`export` (:mod:`.inspection`), which only read and work while the broker runs.
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
from gapless.storage.storage import Statistics, Storage

__all__ = [
    "Loaded",
    "LogSummary",
    "LogVerification",
    "Statistics",
    "Storage",
    "VerificationReport",
    "export",
    "list_logs",
    "verify",
]
