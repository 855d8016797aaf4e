"""Queries inside a program: ``md.collect``, ``md.start``, ``md.restore``.

``embedded_run`` makes a ``run``, whose methods each ask one of its parts. ``run_parts`` makes those that
differ with ``queue=``: ``queued_intake``, ``queue_worker`` and ``thread_reports`` share a ``queue_state``.
The other files are a part each: asyncio, shedding, views of histories, changes, attachments, recordings,
metrics, bounds of memory, and what holds after a fork. ``readable_run`` is what an ``attached`` query has
of a run.
"""
