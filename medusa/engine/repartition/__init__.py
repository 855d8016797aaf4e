"""State of a box by ranges of its keys, and back: SEEP's ``partition`` (SIGMOD'13, 3.2).

``partition`` cuts and merges; the other files know one form of state each: groups of windows, rows,
tables, partial results. Splits of running queries and recovery on several nodes import it.

``query/rewrite/split`` makes a router, parts and a merge of a box, and one box of them again: pure, a
graph in and a graph out. ``query/rewrite/key_ranges`` cuts the hashes of keys into ranges. ``partition``
cuts the state of a box by them (``groups``: windows, sessions, running; ``partials``: panes without a
key; ``rows``: joins, distinct;
``keyed_calls``: process; ``keyed_tables``: tables and look-ups) and ``engine/splitting`` makes of both
what ``engine/query_change`` needs to go on with, where ``given`` is state for boxes that would begin
empty (docs/splitting.md).
"""
