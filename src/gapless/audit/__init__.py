"""The audit log: what was published and delivered, recorded beside the streams.

Theory of operation
-------------------
A broker or a client with an audit directory writes records into it (:mod:`.records`): publications
with their attributes, subscriptions with their filters and the ticks from which they apply,
deliveries, gaps, acknowledgements. A record describes a run of events. The analysis computes which
events each subscription must receive and compares them with the deliveries (:mod:`.timelines`, and
the Spark job ``audit``).

A process has one writer for a directory (:mod:`.writer`). Records are collected in memory, and a
thread writes them together. Only publications are handed to the operating system before they go to
the disk, so that no event of a killed broker is delivered and unrecorded. A file (:mod:`.segments`)
is a segment: frames with checksums are appended to it. Its name ends in ``.open`` while it grows
and in ``.audit`` afterwards. A segment ends by size or by time, and the oldest ones are removed
when a writer has too many. Each can be read alone: it starts with its writer and the open
subscriptions with their positions.

:mod:`.brokers` and :mod:`.clients` create records from the requests, notices and writes of a
broker's runtime and of a client's session. The broker's machine does not know the audit log.

Invariants
----------
- The log influences nothing else. If it cannot be written, it ends with one log line, and the
  broker or client continues.
- A crash loses only the latest records; the records before them can be read. A writer that crashed
  is recognized, and no event is reported lost that it may have recorded.
- The size of memory, of a file and of all files of a writer is bounded.
- A file named ``….audit`` does not change.
"""

from gapless.audit.options import AuditOptions
from gapless.audit.reader import AuditEntry, read, read_segment
from gapless.audit.writer import AuditWriter

__all__ = ["AuditEntry", "AuditOptions", "AuditWriter", "read", "read_segment"]
