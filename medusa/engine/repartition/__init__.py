"""State of a box by ranges of its keys, and back: SEEP's ``partition`` (SIGMOD'13, 3.2).

``partition`` cuts and merges; the other files know one form of state each: groups of windows, rows,
tables, partial results. Splits of running queries and recovery on several nodes import it.
"""
