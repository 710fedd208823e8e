"""Every limit of gapless that nobody sets, in one place, each with its reason.

What an operator may set is in :mod:`.parameters`.

A limit that is reached is an error with the limit's name, or a stated behaviour; never a
silent cut.
"""

from __future__ import annotations

from typing import Final

# --- values and filters -----------------------------------------------------------------------------

INT_MIN: Final = -(2**63)
"""Integers are 64-bit: the least one. Larger ones have no exact wire form in other languages."""

INT_MAX: Final = 2**63 - 1
"""Integers are 64-bit: the greatest one."""

SEQUENCE_MAX: Final = 2**62
"""The highest sequence that a batch of a publisher may begin with: its last one fits too."""

FILTER_TEXT_MAX: Final = 65_536
"""Characters in a filter's text. Parsing costs linear time; this bounds it at some milliseconds."""

FILTER_NESTING_MAX: Final = 100
"""Nested parentheses, NOTs and signs. Keeps the recursive parser far from Python's own limit."""

FILTER_CONJUNCTIONS_MAX: Final = 256
"""Conjunctions in a filter's normal form. AND over OR multiplies; every conjunction is indexed."""

FILTER_CONSTRAINTS_MAX: Final = 4_096
"""Cut points and pieces of patterns over all value sets of a filter. A list of IN values is cheap,
but not free."""

FILTER_OPERATORS_MAX: Final = 98
"""Arithmetic operators in one value. A value is computed and written by recursion, a level each;
a little below FILTER_NESTING_MAX, so that what is written can be read again."""

FILTER_PATTERN_MAX: Final = 4_096
"""Characters in a LIKE pattern that is not just a prefix. One that has a _ inside is searched by a
table that grows with the square of its length: 2 MB at this limit."""

FILTER_STEPS_MAX: Final = 500_000
"""Steps of multiplying a filter out to its normal form. Bounds a hostile filter at a second."""

INT_DIGITS_MAX: Final = 64
"""Digits of an integer in a filter that are read. With more it is above INT_MAX in any case, and so it
is said; Python would take a time that grows with their square."""

PATTERN_MEMORY_MAX: Final = 32 * 1024 * 1024
"""Bytes for patterns in the forms that they are matched and compared in, in one process: some ten
thousand patterns of the usual size."""

PATTERN_PAIRS_MAX: Final = 1_000
"""Pairs of patterns of two sets that are compared. With more they are only asked whether they are
equal, so that one may cover the other and nobody knows."""

PATTERN_CELLS_MAX: Final = 4_000_000
"""Two patterns whose lengths multiply to more are not compared; the careful answer is given."""

ACCESS_VALUES_MAX: Final = 16
"""Values of one IN list that the matching index spreads over its equality groups."""

MEMO_KEYS_MAX: Final = 1_000_000
"""Keys in all results that a matching index remembers; with one too many it forgets them all."""

LINKS_MAX: Final = 1_024
"""Links of one routing index. A mask has a bit a link, and every slot has a mask."""

CONJUNCTION_TEXTS_MAX: Final = 65_536
"""Conjunctions that a process keeps in both forms, parsed and as text. Beyond, some are parsed
again."""

# --- tables -----------------------------------------------------------------------------------------

TABLE_PARTS_MAX: Final = 4_096
"""Parts of one table under way. A part is a frame, so a table above this is larger than memory."""

COVERER_LOOKS_MAX: Final = 256
"""Conjunctions that are asked whether they cover a new one and are older than its coverer. Those
that are not asked make a subscription start later, never wrongly."""

ROUTES_CACHED_MAX: Final = 4_096
"""Results of the sufficiency test that are kept per edge. Beyond, they are computed again."""

# --- overlay ----------------------------------------------------------------------------------------

DELTA_MAX: Final = 16
"""Cells in a row that may be bypassed. A broker has a session with everybody that far away, and tells
better feeders from worse by how far they are."""

RENEWALS_MISSED_MAX: Final = 4
"""So many times ``partition_renew_ms`` a partition is believed without being renewed."""

BROKER_NAME_BYTES_MAX: Final = 255
"""Bytes of the name of a broker or a cell in an overlay's file: a broker's directory is named so, and no
file system in use takes more."""

CELL_BROKERS_MAX: Final = 50
"""Brokers in a cell. Each has a session with all others around; load is shared among them by rank."""

NAME_QUERIES_MAX: Final = 10_000
"""Names of new pubends that a broker asks for, or was asked for, at once. Each is there for a moment;
who asks for more at once is told to try later."""

PARTITIONS_MAX: Final = 256
"""So much news of partitions is kept, of healed ones too. Nobody reads a longer list, and all of it is
told at the start of a session; a link that flaps for a day would make it as long as the day."""

RELAY_PROBES_MAX: Final = 4_096
"""So many pairs of brokers are remembered whose probe was passed on; one too many is passed on again,
which its hops end."""

HOSTING_BROKERS_MAX: Final = 65_536
"""So many moves are remembered. An old home that hears of none keeps logs for nobody until its
subscription expires, and costs no more than that."""

RETIREMENTS_MAX: Final = 4_096
"""So many retirements are remembered, those that are over because their brokers are back too. All are told at the
start of a session. Of more the oldest is forgotten, and that broker is waited for again until it is retired once
more; no overlay has lost so many."""

RETURNED_PUBENDS_MAX: Final = 64
"""Pubends that a broker names when it is back from a retirement, so that nobody waits for others that it had: they are
told with its return at the start of every session, for ever. One that has more names none, and is waited for with all
that it had."""

# --- streams ----------------------------------------------------------------------------------------

NACK_REPLY_FRAMES_MAX: Final = 4
"""An answer to a nack is not much larger than so many full frames: a link that is busy with one for
longer than a session bears seems dead. What is left is asked for again."""

JOIN_PUBLICATIONS_MAX: Final = 32
"""Publications of a piece that was joined of pieces with publications. Bounds what is copied."""

ENCODING_CACHE_BYTES_MAX: Final = 12_582_912
"""Publications whose sizes, and what was written of which, are remembered: those between publisher, disk
and receivers, of a few publishers at full speed."""

ADVERTISEMENTS_KEPT: Final = 8
"""Narrower advertisements that are remembered. Of what is older it is not known who could match it."""

START_GUARANTEE_TIMES_MAX: Final = 8
"""Homes by whose moments a durable subscription is owed a younger pubend. Beyond, the first and the last ones
stay: the first had it for longest, and the last are those that a pubend has surely heard of."""

START_GUARANTEE_PUBENDS_MAX: Final = 4_096
"""Pubends for which a durable subscription is owed something else than for all others, as its client brings it along.
They are in every record of it that is saved. A home that would tell more tells of these alone, and names no moments
for all others: they begin with what comes."""

FORMER_HOSTS_PER_READ_MAX: Final = 64
"""Former homes of subscriptions that a pubend is asked about at once; of more it is asked again."""

KNOWN_HOST_TIMES_MAX: Final = 8
"""Moments that are noted of one host that was known before a pubend was made. Beyond, the two nearest
become one: some subscriptions then begin a little earlier than they could ask for."""

PROGRESS_STREAMS_MAX: Final = 1_000
"""Streams in one notice of progress; of more it is told in several."""

ROOTS_READ_MAX: Final = 64
"""Conjunctions of a filter that stands for all subscriptions of a host; beyond, everything is read."""

NAME_MAX: Final = 256
"""Characters in the name of a pubend, a publisher or a subscription. The first is in every message of its
stream, the second in every event, the third is part of keys on several disks."""

# --- publishers and writers -------------------------------------------------------------------------

LOOKUP_PENDING_BATCHES_MAX: Final = 1_024
"""Batches of one publisher that wait for a look-up. A client has not many more in flight; who has is
told to send again later."""

LOOKUP_SEQUENCES_MAX: Final = 4_096
"""Sequences that one reading of the log looks for, if one batch does not need more. What lies above is
looked up by another reading."""

WRITER_NAME_MAX: Final = 256
"""Characters in the name of a writer or of an attempt; a writer's is in every event."""

# --- reads of logs ----------------------------------------------------------------------------------

READS_MAX: Final = 1_024
"""Reads of one pubend under way at once. Each may bring a chunk of the log into memory; who is turned
away asks again."""

READ_RANGES_MAX: Final = 1_000
"""Pieces of one answer to a read. Silence has no bytes, but a piece for every regime that began in
it."""

READ_FILTERS_KEPT: Final = 256
"""Filters of reads that are kept parsed. A catch-up repeats its text with every chunk; beyond, it is
parsed again."""

READER_FILTERS_KEPT: Final = 256
"""Filters of readers of which the normal form is kept. Who reads a log repeats his with every part."""

COLUMN_FILTER_ATTRIBUTES_MAX: Final = 64
"""Attributes of a reader's filter that are looked at in packed rows, each among those of every
publication. Of a filter with more none is: every publication is unpacked and asked."""

RELEASED_LOG_HOLDS_KEPT: Final = 4_096
"""Holds that are remembered as released. A copy comes late by seconds; in these not more end."""

REQUEST_HOPS_MAX: Final = 128
"""Brokers on the way of a request. Every hop is nearer to the pubend, so a way is as long as the tree
is deep; a longer one goes astray."""

REQUEST_ATTEMPTS_KEPT: Final = 8
"""Ids of one errand that are remembered. An answer to an older attempt is too late to be waited for."""

# --- what people are shown --------------------------------------------------------------------------

SHOWN_ENTRIES_MAX: Final = 256
"""Cells, pubends or subscriptions in one answer. With the longest filters they fill a frame."""

SHOWN_PEERS_MAX: Final = 1_024
"""Peers in one answer; those of the nearest cells come first."""

SHOWN_CURSORS_MAX: Final = 256
"""Streams of one subscription in one answer."""

SHOWN_CURSORS_LISTED_MAX: Final = 16
"""Streams of each subscription in a list; who wants to see all asks for that subscription."""

SHOWN_MEMBERS_MAX: Final = 64
"""Members of a pubend in a list."""

SHOWN_HOSTS_NAMED_MAX: Final = 32
"""Hosts that are named to somebody who asked for another."""

SHOWN_TEXT_MAX: Final = 1_048_576
"""Characters of filters in one answer, about."""

SHOWN_LAGGING_MAX: Final = 3
"""Lagging hosts that a refusal names, if a log is full."""

SHOWN_CUTS_MAX: Final = 3
"""Partitions that are named to a client that waits; who wants to see all lists the table."""

SHOWN_DIFFERENCES_MAX: Final = 3
"""Differences that are named between a data directory and the tree; the topology files tell all."""

SHOWN_REASONS_MAX: Final = 20
"""Streams that wait and are explained below a list, then their number; ``--json`` has all."""

SHOWN_QUOTE_MAX: Final = 60
"""Characters of a text that an error quotes."""

SHOWN_EVENT_MAX: Final = 2_000
"""Characters of an event in the log when a step breaks."""

SHOWN_CLIENT_NAME_MAX: Final = 64
"""Characters that are kept of what a client calls itself."""

# --- disk, wire and processes -----------------------------------------------------------------------

GROUP_BYTES_MAX: Final = 32 * 1024 * 1024
"""Bytes from which on no more writes join a transaction, so that the first is not kept waiting."""

WAL_BYTES_MAX: Final = 64 * 1024 * 1024
"""Bytes of the WAL from which on fetches are held up so that it can be cut."""

WAL_BYTES_KEPT: Final = 16 * 1024 * 1024
"""To how much the WAL is cut when it starts over after a burst."""

FREE_PAGES_KEPT: Final = 2_048
"""Free pages of a database that are always kept for new rows: 16 MiB."""

STATEMENTS_KEPT: Final = 64
"""Statements that a connection to the database keeps compiled."""

FRAME_BYTES_MAX: Final = 16_777_216
"""Bytes of the body of a frame. Far above what a broker sends (``frame_bytes_max``), because a packet
may carry several frames of streams, and far below what would hurt a process that reads it."""

EVENT_BYTES_MAX: Final = FRAME_BYTES_MAX // 2
"""Bytes of a client's frame: with what a broker adds to an event it still fits into a frame."""

PART_BYTES: Final = 4_194_304
"""Bytes of a packet that a part carries."""

PACKET_BYTES_MAX: Final = 268_435_456
"""Bytes of a packet in parts: several times what a broker keeps to answer from."""

LOG_FILE_BYTES_MIN: Final = 4_096
"""The least bound of a file that a broker's words are written to: less would be a file a line."""

LOG_FILES_MAX: Final = 1_000
"""Full files of a broker's words that are kept, at most. With a new one each is renamed."""

HTTP_REQUEST_BYTES_MAX: Final = 8_192
"""Bytes of a request for metrics; a browser's is below 2,000."""

KEEPALIVES_MISSED_MAX: Final = 4
"""After so many keepalive times without a sign of it a client, or by a client its broker, is given up."""

GENERATED_CELLS_MAX: Final = 1_000
"""Cells, and brokers, of a generated overlay: more processes than a computer should be asked for."""

AUDIT_PENDING_RECORDS_MAX: Final = 20_000
"""Records of the audit log that wait at most; then who adds one writes them. A record may hold a batch
of events."""

AUDIT_AUTHORS_MAX: Final = 10_000
"""Publishers that are gone whose principals a broker still knows, for what it writes late."""

TOKEN_CHARACTERS_MAX: Final = 1_024
"""Characters of a token. Ours have 51; those of others, who sign what they say, have some hundred."""

TOKENS_BYTES_MAX: Final = 1_048_576
"""Bytes of a file of tokens: some 8,000 of them. It is read between two events of a broker, in half a
second at this limit."""

BROKER_TOKENS_MAX: Final = 4
"""Secrets of brokers in their file: the one that is shown and, while it is exchanged, others."""

PRINCIPAL_NAME_MAX: Final = 200
"""Characters in the name of a principal; it is in the audit log with everything that was done."""

# --- clients ----------------------------------------------------------------------------------------

BATCH_BYTES_MAX: Final = 262_144
"""A batch is sent when it has so many bytes, so that a frame is neither tiny nor long on its way."""

BATCH_EVENTS_MAX: Final = 500
"""The same for events of a batch."""

SMALL_BATCHES_MAX: Final = 4
"""When so many batches are under way, the next one is sent when it is worth a frame or one of them is
answered. So a lone event is not held back, and under load frames are full."""

IN_FLIGHT_BYTES_MAX: Final = 8_388_608
"""More than this a publisher does not send before something is answered."""

READ_BYTES_MAX: Final = 262_144
"""What a connection reads at once."""

IN_FLIGHT_EVENTS_MAX: Final = 12_000
"""Events that may wait in a publisher, by default, whole batches of them; ``send`` waits when there are more."""

CHUNK_BYTES_MAX: Final = 262_144
"""A chunk that is staged is sent when it has so many bytes. It becomes a row of the log."""

CHUNK_EVENTS_MAX: Final = 1_000
"""The same for events of a chunk."""

IN_FLIGHT_CHUNKS_MAX: Final = 8
"""So many chunks may be unanswered; who adds more waits."""

GAPS_KEPT: Final = 1_000
"""Gaps that were reported and not raised; the oldest go first."""

FETCHED_MAX: Final = 128
"""Events that come over from the background thread at once; one wait is shared by so many."""

OPTION_MAX: Final = 2**31 - 1
"""No option of a client is larger: neither events that may wait, nor seconds."""
