"""The audit log: what was published and delivered where, written down beside the streams.

Theory of operation
-------------------
A broker or a client that is given a directory writes records into it (:mod:`.records`): publications
with their attributes, subscriptions with the filters that govern and from where on, deliveries, gaps,
acknowledgements. Records are of runs of events, not of events. From them it can be computed what was
owed to whom, and compared with what came (:mod:`.timelines`, and the Spark job ``audit``).

A process has one writer for a directory (:mod:`.writer`). Records gather in memory and are written
together, by a thread; only publications are handed to the system before they go to the disk, so that a
killed broker leaves no event that is delivered and not written down. A file (:mod:`.segments`)
is a segment: it grows at its end, in frames with a checksum, is named ``….open`` while it grows and
``….audit`` when it does not any more. Segments end by size and by time, and the oldest are removed when
a writer has too many. Each begins with what is needed to read it alone: who writes, and which
subscriptions are open, where.

:mod:`.brokers` and :mod:`.clients` turn what passes through a broker's runtime and through a client's
session into records. The broker's machine knows nothing of it.

Invariants
----------
- The log decides nothing: where it cannot be written, it ends, says so once, and the rest goes on.
- A crash loses the records of a moment at most; what is in the file before them can be read. A writer
  that did not end in order is known by that, and nothing is called lost that it may have known of.
- What is in memory, in a file and in all files of a writer is bounded.
- A file named ``….audit`` does not change.
"""

from gapless.audit.options import AuditOptions
from gapless.audit.reader import AuditEntry, read, read_segment
from gapless.audit.writer import AuditWriter

__all__ = ["AuditEntry", "AuditOptions", "AuditWriter", "read", "read_segment"]
