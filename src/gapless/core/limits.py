"""All fixed limits of gapless, each with its reason.

The limits that an operator may set are in :mod:`.parameters`. Other files of this package whose
names end in ``limits`` have those of single components. When a limit is reached, an error names it
or a documented behaviour follows. Nothing is cut off silently.
"""

from __future__ import annotations

from typing import Final

# --- parameters -------------------------------------------------------------------------------------

PARAMETER_TIME_MAX: Final = 10**10
"""Seconds or milliseconds of a parameter. As microseconds of a clock they fit into 64 bits."""

PARAMETER_MAX: Final = 2**62
"""A parameter that is a size or a number."""

# --- values and filters -----------------------------------------------------------------------------

INT_MIN: Final = -(2**63)
"""The least integer. Integers have 64 bits: larger ones are not exact in other languages."""

INT_MAX: Final = 2**63 - 1
"""The greatest integer."""

SEQUENCE_MAX: Final = 2**62
"""The greatest first sequence of a batch, so that the last one fits into 64 bits too."""

TICK_REQUESTED_MAX: Final = 2**61
"""The greatest tick that a receiver may request. Events above it still get valid ticks."""

CLIENT_COUNT_MAX: Final = 2**61
"""The greatest number of a client that a broker counts on from, such as an epoch."""

FILTER_TEXT_MAX: Final = 65_536
"""Characters in a filter's text. Parsing takes linear time, some milliseconds at this limit."""

FILTER_QUICK_TEXT_MAX: Final = 1_000
"""Characters of a client's filter up to which the event loop itself makes the normal form."""

FILTER_QUICK_JOINTS_MAX: Final = 4
"""ORs, NOTs and patterns of such a filter. Each may double the conjunctions."""

FILTERS_KEPT: Final = 64
"""Cached normal forms, or errors, of the last texts in one process. A text that a thread has
brought to its normal form is used at once."""

FILTER_NESTING_MAX: Final = 100
"""Nested parentheses, NOTs and signs. Keeps the recursive parser far from Python's recursion
limit."""

FILTER_CONJUNCTIONS_MAX: Final = 256
"""Conjunctions in a filter's normal form. AND over OR multiplies, and each is indexed."""

FILTER_CONSTRAINTS_MAX: Final = 4_096
"""Interval bounds and pattern parts over all value sets of a filter. IN values are not free."""

FILTER_OPERATORS_MAX: Final = 98
"""Arithmetic operators in one value. Each is one level of recursion. The limit is below
FILTER_NESTING_MAX, so that the canonical text of a filter can be parsed again."""

FILTER_PATTERN_MAX: Final = 4_096
"""Characters in a LIKE pattern that is not just a prefix. Comparing two takes 2 MB here."""

FILTER_SEGMENT_MAX: Final = 128
"""Characters between two % of a LIKE pattern, with a _ among them. A search takes as long."""

FILTER_SEARCHES_MAX: Final = 128
"""Searches of texts by the patterns of a filter, up to 0.2 ms each for EVENT_TEXT_MAX."""

FILTER_STEPS_MAX: Final = 500_000
"""Steps to expand a filter to its normal form. Bounds a hostile filter at a second."""

INT_DIGITS_MAX: Final = 64
"""Digits of an integer that are converted, in quadratic time. A longer one is above INT_MAX."""

PATTERN_MEMORY_MAX: Final = 32 * 1024 * 1024
"""Bytes of cached compiled patterns in one process: about ten thousand usual patterns."""

PLACES_KEPT: Final = 64
"""Characters whose places in the last searched text are cached; each takes a bit per position."""

PATTERN_PAIRS_MAX: Final = 1_000
"""Pairs of patterns of two sets that are compared; with more, a cover may go unnoticed."""

PATTERN_CELLS_MAX: Final = 4_000_000
"""Product of the lengths of two patterns that are compared. Above it the result is the safe one."""

ACCESS_VALUES_MAX: Final = 16
"""Values of one IN list that the matching index enters in its equality groups."""

MEMO_KEYS_MAX: Final = 1_000_000
"""Keys in all cached results of a matching index. Above it the cache is cleared."""

MATCH_WORK_MAX: Final = 20_000
"""Work of patterns and terms in a step, in microseconds: as much at a router as at an SHB (R25, R44)."""

LINKS_MAX: Final = 1_024
"""Links of one routing index. A mask has one bit per link, and every slot has a mask."""

CONJUNCTION_TEXTS_MAX: Final = 65_536
"""Conjunctions that a process caches parsed and as text. Others are parsed again."""

# --- tables -----------------------------------------------------------------------------------------

CHANGE_BURST: Final = 16
"""Changes of a table, or stream epochs of a pubend, that follow each other at once after a pause;
then one in an interval. A program with a few subscriptions does not wait, and thousands of changes
are still sent together."""

TABLE_PARTS_MAX: Final = 4_096
"""Parts of one table in transfer. A part is a frame, so a larger table would not fit in memory."""

COVERER_LOOKS_MAX: Final = 256
"""Conjunctions tested for whether they cover a new one from an earlier start than its coverer. If
one is not tested, a subscription may start later, but never wrongly."""

ROUTES_CACHED_MAX: Final = 4_096
"""Cached results of the sufficiency test per edge. Others are computed again."""

# --- overlay ----------------------------------------------------------------------------------------

DELTA_MAX: Final = 16
"""Consecutive cells that may be bypassed. A broker has a session with every broker within that
distance, and ranks feeders by distance."""

RENEWALS_MISSED_MAX: Final = 4
"""Periods of ``partition_renew_ms`` without a renewal after which a partition counts as healed."""

BROKER_NAME_BYTES_MAX: Final = 255
"""Bytes of the name of a broker or a cell in an overlay file. The name is a directory name, and
usual file systems allow no more."""

CELL_BROKERS_MAX: Final = 50
"""Brokers in a cell. Each has a session with all others of the neighbourhood."""

NAME_QUERIES_MAX: Final = 10_000
"""Concurrent name queries of a broker, its own or received ones. A client that exceeds it is
refused with UNAVAILABLE."""

SEARCHES_PER_CLIENT_MAX: Final = 64
"""Requests of one client that wait for a search for a durable subscription, or for a list of all. A
further one is refused, and the client repeats it."""

WALKS_MAX: Final = 10_000
"""Concurrent searches for durable subscriptions at a broker, its own or received ones, and requests
that wait for them. A client that exceeds it is refused with HOST_UNKNOWN."""

CONFIRMED_NAMES_MAX: Final = 100_000
"""Durable names whose host a broker has confirmed since a session closed. Others are asked again."""

SILENT_NAMED_MAX: Final = 16
"""Brokers that did not answer which an answer names."""

REDIRECTS_MAX: Final = 4
"""How often in a row brokers may redirect a client that looks for its durable subscription."""

PARTITIONS_MAX: Final = 256
"""Partitions kept, healed ones included. All are sent at the start of a session, and a link that
flaps would make the list arbitrarily long."""

RELAY_PROBES_MAX: Final = 4_096
"""Pairs of brokers whose forwarded probe is remembered. Others may be forwarded twice, a few hops."""

HOSTING_BROKERS_MAX: Final = 65_536
"""Moves of subscriptions that are remembered, or a former host keeps logs until its copy expires."""

RETIREMENTS_MAX: Final = 4_096
"""Retirements and returns that are kept, and sent at the start of a session. Beyond it the oldest
is forgotten, and its broker is waited for again until it is retired again."""

RETURNED_PUBENDS_MAX: Final = 64
"""Pubends that a broker names when it returns from a retirement; any other that it had is lost. All
sessions start with the names. A broker with more names none, and all its pubends count as existing."""

# --- streams ----------------------------------------------------------------------------------------

NACK_REPLY_FRAMES_MAX: Final = 4
"""Full frames in one reply to a nack, about, so that a link is not occupied beyond the session timeout.
The receiver requests the rest again."""

NACK_RANGES_MAX: Final = 1_024
"""Ranges in one nack, and the greatest ``nack_ranges_max``."""

REPORT_ITEMS_MAX: Final = 1_000
"""Members of one set, and pubends of one ack report. A router divides more."""

REPORTS_PER_STEP_MAX: Final = 1_000
"""Reports, of one member for one pubend, that a step takes; others wait for later steps."""

REPORTS_WAITING_MAX: Final = 1_000_000
"""Reports that wait for later steps. Beyond it they are dropped, since they are repeated."""

JOIN_PUBLICATIONS_MAX: Final = 32
"""Publications of a range that is merged from two ranges with some. Bounds copying."""

ENCODING_CACHE_BYTES_MAX: Final = 12_582_912
"""Bytes of publications whose sizes and encodings are cached: those between publisher, disk and
receivers, of a few publishers at full speed."""

ADVERTISEMENTS_KEPT: Final = 8
"""Former narrower advertisements that are kept. Older events are not matched against one."""

START_GUARANTEE_TIMES_MAX: Final = 8
"""Host times of a start guarantee. Beyond the limit the first and the last ones are kept: the first
SHB had the filter longest, and a PHB most likely knows the last ones."""

START_GUARANTEE_PUBENDS_MAX: Final = 4_096
"""Pubends with start guarantees of their own that a client presents, and each saved record contains.
A hosting broker with more sends only these and no default, so all others start with the latest."""

FORMER_HOSTS_PER_READ_MAX: Final = 64
"""Former hosting brokers in one Read. More take several requests."""

KNOWN_HOST_TIMES_MAX: Final = 8
"""Virtual times of one known host. Others are merged, and some subscriptions start a little early."""

UNKNOWN_STREAMS_MAX: Final = 1_024
"""Unannounced streams of an SHB that positions of clients name. Each costs a record, and requests that
are repeated. A Subscribe that needs more is refused with UNAVAILABLE."""

PROGRESS_STREAMS_MAX: Final = 1_000
"""Streams in one Progress message. More take several messages."""

ROOTS_READ_MAX: Final = 64
"""Conjunctions of a read filter that covers all subscriptions of an SHB. Beyond it, all events
are read."""

NAME_MAX: Final = 256
"""Characters in the name of a pubend, a publisher or a subscription. The first is in every message
of its stream, the second in every event, the third in keys on several disks."""

COMPOSED_NAME_MAX: Final = 512
"""Characters of a name that brokers compose of two names, or of one and two numbers."""

NAME_PREFIX_MAX: Final = 200
"""Characters of a session's name in the names that the client generates for its publishers and
subscriptions. Those must be at most NAME_MAX long."""

# --- publishers and writers -------------------------------------------------------------------------

PUBLISH_EVENTS_MAX: Final = 10_000
"""Events in one batch or chunk of a client. A frame may contain a million empty events."""

EVENT_TEXT_MAX: Final = 65_536
"""Characters of a text among the attributes of an event. No filter can contain a longer one."""

PUBLISHES_PER_STEP_MAX: Final = 64
"""Batches of one client in one step: a full window. Each refusal may quote a long advertisement."""

ROW_EVENTS_MAX: Final = 1_000
"""Events in one row of a log. A batch with more becomes several rows, which are sent one by one."""

ROW_BYTES_MAX: Final = 393_216
"""Bytes of publications in one row of a log or one message, unless it is a single publication.
Filters compare the texts of one row in a step."""

BEST_EFFORT_ROWS_MAX: Final = 128
"""Rows of a best-effort pubend that wait for later steps: a few of the largest batches."""

LOOKUP_PENDING_BATCHES_MAX: Final = 1_024
"""Batches of one publisher that wait for a look-up. Others are refused and may be sent again."""

LOOKUP_SEQUENCES_MAX: Final = 4_096
"""Sequences that one scan of the log looks for, unless one batch has more. Others take another."""

WRITER_NAME_MAX: Final = 256
"""Characters in the name of a writer or of an attempt; a writer's is in every event."""

# --- reads of logs ----------------------------------------------------------------------------------

READS_MAX: Final = 1_024
"""Concurrent reads of one pubend, each with a chunk of the log. Requesters beyond it repeat."""

COUNTED_TICKS_MAX: Final = 256
"""Ticks in one request for the number of publications up to them. Each may read one row of the log."""

READS_PER_CLIENT_MAX: Final = 8
"""Concurrent reads of one client; each reply may have ``read_bytes_max``. Others wait."""

READS_WAITING_PER_CLIENT_MAX: Final = 256
"""Reads of one client that wait, each with a long filter. Others are refused with UNAVAILABLE."""

READ_RANGES_MAX: Final = 1_000
"""Knowledge ranges in one reply to a read: silence has no bytes, but a range a stream epoch."""

READ_FILTERS_KEPT: Final = 256
"""Cached parsed filters of reads: a catch-up repeats its filter with every chunk."""

READER_FILTERS_KEPT: Final = 256
"""Cached normal forms of filters of log readers. A reader repeats its filter with every part."""

COLUMN_FILTER_ATTRIBUTES_MAX: Final = 64
"""Attributes of a reader's filter for a column scan. With more, each publication is decoded."""

RELEASED_LOG_HOLDS_KEPT: Final = 4_096
"""Released log holds that are remembered; a duplicate release arrives within seconds."""

ROUTE_BROKERS_MAX: Final = 128
"""Brokers on the route of a request, a reply or a relayed packet. A longer one is wrong."""

REQUEST_ATTEMPTS_KEPT: Final = 8
"""Ids of one pending request that are remembered. A reply to an older attempt is ignored."""

# --- replies to operators and error texts -----------------------------------------------------------

SHOWN_ENTRIES_MAX: Final = 256
"""Cells, pubends or subscriptions in one reply. With the longest filters they fill a frame."""

SHOWN_PEERS_MAX: Final = 1_024
"""Peers in one reply, nearest cells first."""

SHOWN_CURSORS_MAX: Final = 256
"""Cursors of one subscription in one reply."""

SHOWN_CURSORS_LISTED_MAX: Final = 16
"""Cursors of each subscription in a list. The reply for one subscription has all."""

SHOWN_LAGS_MAX: Final = 100
"""Streams of durable subscriptions whose lag is in the metrics: those farthest behind."""

LAG_CURSORS_MAX: Final = 512
"""Cursors of which one step determines the lag; the others wait for later steps."""

LAG_MEASUREMENTS_MAX: Final = 64
"""Measurements of lags that wait for PHBs at once. Beyond, lags that need a PHB are unknown."""

NAME_PATTERN_MAX: Final = 255
"""Characters of a pattern of names."""

SHOWN_MEMBERS_MAX: Final = 64
"""Members of a pubend in a list."""

SHOWN_HOSTS_NAMED_MAX: Final = 32
"""Known SHBs that a refusal names if the requested one is unknown."""

SHOWN_TEXT_MAX: Final = 1_048_576
"""Characters of filters in one reply, about."""

SHOWN_LAGGING_MAX: Final = 3
"""Lagging hosts that a refusal names if a log is full."""

SHOWN_CUTS_MAX: Final = 3
"""Partitions in a reason that a client is sent. ListPartitions returns all."""

SHOWN_DIFFERENCES_MAX: Final = 3
"""Differences between a data directory and the configured tree that an error names."""

SHOWN_REASONS_MAX: Final = 20
"""Pending streams explained below a list, followed by the number of the others; ``--json`` has
all."""

SHOWN_BATCHES_MAX: Final = 3
"""Ranges of sequences that an error of a publisher names."""

SHOWN_QUOTE_MAX: Final = 60
"""Characters of a text that an error quotes."""

RICH_ROWS_MAX: Final = 200
"""Rows of a table that is laid out for the width of the terminal, which takes 2 ms a row."""

SHOWN_EVENT_MAX: Final = 2_000
"""Characters of an event in the log line of a failed step."""

SHOWN_CLIENT_NAME_MAX: Final = 64
"""Characters of a client's name that are kept."""

# --- disk, wire and processes -----------------------------------------------------------------------

STREAM_EPOCH_ENTRIES_MAX: Final = 4_096
"""Entries of the vectors of all stream epochs that a pubend keeps: about 1 MiB. A storm of
subscriptions at a thousand SHBs would otherwise take gigabytes."""

STREAM_EPOCHS_MIN: Final = 16
"""Stream epochs that a pubend keeps although their vectors are large."""

STREAM_EPOCH_REQUESTS_MAX: Final = 5
"""Requests for a stream epoch, which may not be kept, before an SHB reads its ticks from the log."""

GROUP_BYTES_MAX: Final = 32 * 1024 * 1024
"""Bytes above which no further write joins a transaction, so that the first one is not delayed."""

WAL_BYTES_MAX: Final = 64 * 1024 * 1024
"""Bytes of the WAL above which fetches are delayed so that it can be truncated."""

WAL_BYTES_KEPT: Final = 16 * 1024 * 1024
"""Size to which the WAL is truncated when it restarts after a burst."""

SPACE_RESERVE_BYTES: Final = 16 * 1024 * 1024
"""Space on the disk that a running broker reserves, so that logs can be trimmed on a full disk."""

DISK_WARNING_BYTES: Final = 10 * 1024 * 1024 * 1024
"""Free bytes below which a broker warns, on a disk above ten times as much."""

MEMORY_LOG_BYTES: Final = 1024 * 1024 * 1024
"""Bytes of all logs of a broker that has them in memory."""

LOG_SIZE_MARKS_MAX: Final = 256
"""Marks of the size of a log beyond which some are merged: 4 KiB of the record of its pubend."""

FREE_PAGES_KEPT: Final = 2_048
"""Free pages of a database that are kept for new rows: 16 MiB."""

STATEMENTS_KEPT: Final = 64
"""Compiled statements that a database connection caches."""

FRAME_BYTES_MAX: Final = 16_777_216
"""Bytes of the body of a frame: far above ``frame_bytes_max``, because a packet may contain several
StreamData messages, and far below a reader's memory."""

EVENT_BYTES_MAX: Final = FRAME_BYTES_MAX // 2
"""Bytes of a client's frame. With the fields that a broker adds, an event still fits into a
frame."""

PART_BYTES: Final = 4_194_304
"""Bytes of a packet in one part."""

PACKET_BYTES_MAX: Final = 268_435_456
"""Bytes of a packet in parts: several times ``cache_bytes``."""

LOG_FILE_BYTES_MIN: Final = 4_096
"""The least size limit of a log file. A smaller one would make a file of each line."""

LOG_FILES_MAX: Final = 1_000
"""Full log files of a broker that are kept. Each is renamed when a new one is started."""

HTTP_REQUEST_BYTES_MAX: Final = 8_192
"""Bytes of an HTTP request for metrics. A browser's has less than 2,000."""

KEEPALIVES_MISSED_MAX: Final = 4
"""Keepalive periods without a frame after which a broker or a client closes the connection."""

GENERATED_CELLS_MAX: Final = 1_000
"""Cells, and brokers, of a generated overlay. More processes would overload one computer."""

AUDIT_PENDING_RECORDS_MAX: Final = 20_000
"""Audit records that wait to be written. The caller that adds one more writes them. A record may
contain a batch of events."""

AUDIT_AUTHORS_MAX: Final = 10_000
"""Disconnected publishers whose principals a broker remembers, for events that it writes later."""

TOKEN_CHARACTERS_MAX: Final = 1_024
"""Characters of a token. Ours have 51; signed tokens of other issuers have some hundred."""

TOKENS_BYTES_MAX: Final = 1_048_576
"""Bytes of a token file: some 8,000 tokens. A broker reads it between two events, in half a second
at this limit."""

BROKER_TOKENS_MAX: Final = 4
"""Secrets in the brokers' token file: the current one and, during an exchange, others."""

PRINCIPAL_NAME_MAX: Final = 200
"""Characters in the name of a principal. It is in every audit record."""

# --- clients ----------------------------------------------------------------------------------------

BATCH_BYTES_MAX: Final = 262_144
"""Bytes at which a publisher sends a batch, so that a frame is neither tiny nor slow."""

BATCH_EVENTS_MAX: Final = 500
"""Events at which a publisher sends a batch."""

SMALL_BATCHES_MAX: Final = 4
"""Batches in flight above which the next one waits until it is full or one of them is answered. A
single event is not delayed, and under load frames are full."""

IN_FLIGHT_BYTES_MAX: Final = 8_388_608
"""Bytes that a publisher sends without an answer."""

READ_BYTES_MAX: Final = 262_144
"""Bytes that a connection reads at once."""

IN_FLIGHT_EVENTS_MAX: Final = 12_000
"""Default for the events, in whole batches, that wait in a publisher. ``send`` waits when there are
more."""

CHUNK_BYTES_MAX: Final = 262_144
"""Bytes at which a staged chunk is sent. It becomes a row of the log."""

CHUNK_EVENTS_MAX: Final = 1_000
"""Events at which a staged chunk is sent."""

IN_FLIGHT_CHUNKS_MAX: Final = 8
"""Chunks that may be unanswered; a caller that adds more waits."""

GAPS_KEPT: Final = 1_000
"""Reported gaps, not raised, and reported ends of pubends; the oldest are dropped first."""

ACK_PUBENDS_MAX: Final = 256
"""Pubends of one acknowledgement of a client; a frame has room for so many of the longest names."""

FETCHED_MAX: Final = 128
"""Events that are fetched from the background thread at once, with one wait."""

OPTION_MAX: Final = 2**31 - 1
"""The greatest value of a client option."""
