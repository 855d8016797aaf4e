"""Every bound on what comes from a link. Checked before anything is allocated for it."""

from __future__ import annotations

PROTOCOL_VERSION = 2
"""The newest that this release speaks. ``Hello`` says the range; two peers speak the newest that both know,
and refuse each other where there is none. A field that is added at the end of a message, with a default,
takes no new version: older releases skip it. Every other change of a message does.

2: ``StoppedRemote`` says why a part ended, and when; streams have a life (``Attach``, ``Attached``);
``Remove`` and ``DropRemote`` say what they undo."""

PROTOCOL_VERSION_LEAST = 2
"""The oldest that this release speaks."""

AGREEING_VERSION = 2
"""The oldest whose speakers can agree on who takes over a fragment."""

HEADER_BYTES_MAX = 64 << 10
"""Of the msgpack header of a frame: holds the schema of a stream (``Attached``) at its widest."""

PAYLOAD_BYTES_MAX = 4 << 20
"""Of the rows of one train, and of one deployed query. A credit window is never smaller, so that
any one frame fits into an empty window."""

TRAIN_BYTES = 512 << 10
"""Trains are cut to about this before they leave. Too small: the cost per frame shows; too large:
heartbeats wait behind a train."""

ROWS_MAX = 1 << 20
"""Rows of one train."""

COLUMNS_MAX = 1000
"""Columns of a stream; the hidden ones not counted."""

NAME_CHARS_MAX = 255
"""Of a column, stream or node name."""

TEXT_CHARS_MAX = 2000
"""Of a message or hint that a peer sends for people."""

PLACES_MAX = 1000
"""Nodes named in one deployment, and boxes named per node."""

STANDBY_MAX = 8
"""Nodes that stand by for one fragment, and witnesses of one query."""

CHECKPOINT_EVERY_US_LEAST = 50_000
CHECKPOINT_EVERY_US_MAX = 600_000_000
"""Between two checkpoints of a fragment: how often it may take one, and how seldom."""

CREDIT_BYTES_MAX = 1 << 30
"""More than this ahead of what was sent is never believed: a larger grant counts as this much."""

THINNED_MAX = 32
"""Places above one stream at which rows are left out, told apart; the last is the sum of all others."""

SEQ_MAX = (1 << 62) - 1
"""Rows of a stream, frames of an attachment."""

ENTRY_BYTES = 128
"""What a train or boundary costs in credit and retention beside its payload and note, so that many
empty ones are bounded too."""

NOTE_BYTES_MAX = 16 << 10
"""Of what a node without a disk has its neighbours keep for it; a longer one isn't sent."""

LANES_MAX = 16
"""Connections for streams from one node to another."""

TRADED_BYTES_MAX = 512 << 10
"""Of one message of a negotiation between participants: names of up to 1,000 tasks, and what they take."""

BOOKED_BYTES_MAX = 256 << 10
"""Of one message about what participants owe each other: two readings, with their signatures."""

STATEMENT_BYTES_MAX = 1 << 10
"""Of what a participant signs."""

DHT_ENTRY_BYTES_MAX = 8 << 10
"""Of an entry of the catalog between participants; a wider schema is left out of it."""

DHT_SIGNATURE_BYTES_MAX = 160
"""What key and signature add to it."""

DHT_NODES_MAX = 16
"""Nodes named in one entry."""

DHT_MEMBERS_MAX = 16
"""Members named in one answer."""

BODY_BYTES_MAX = 64 << 10
"""Of one entry of the catalog: holds the schema of a stream."""

ENTRIES_MAX = 1000
"""Entries of one node in one message."""

WRITERS_MAX = 12_288
"""Names that the nodes of one participant have: so many are named in one message, however long."""

RUNS_BYTES_MAX = 1 << 20
"""Of one message with entries of the catalog."""
