"""What every operator is built of.

``box`` is the base of all operators: inputs, an output, counters, boundaries, state. Around it stand
the parts that operators share: rows that wait (``row_buffer``, ``kept_rows``, ``sorted_runs``,
``spool``), rows by key (``group_numbers``, ``keyed_table``), rows in order piece by piece (``sorting``),
rows that failed (``dead_letters``), bounds of memory, and the types that native code knows
(``native_types``). Nothing here knows an operator.
All of ``medusa.engine`` may import it, and nothing outside of it.
"""
