"""Operators over groups of rows: tumbling and sliding windows (``aggregate``), sessions, windows of rows
and of values (``span``), running aggregates, top-N.

``aggregate`` drives the native window; kinds that close group by group keep their accumulators in
``groups``. ``aggregate_user`` and ``groups_user`` do the same for aggregates that users wrote.
"""
