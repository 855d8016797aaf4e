"""Queries inside a program: ``md.collect``, ``md.start``, ``md.restore``.

``embedded_run`` makes a run; the other files are what a run may have: a queue and its thread, asyncio,
shedding, connection points, changes, recordings, metrics, a bound of memory, and what holds after a
fork.
"""
