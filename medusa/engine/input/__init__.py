"""Rows from outside become batches of a stream's schema, whole or not at all.

``ingest`` takes what a program pushes and shares its buffers where types allow; ``conversion`` converts
without loss or refuses; ``push_arguments`` reads what is said beside the rows; ``intake`` is what waits
before a run.
"""
