"""Operators over groups of rows: tumbling and sliding windows (``aggregate``), sessions, windows of rows
and of values (``span``), running aggregates, top-N.

``aggregate`` drives the native window; kinds that close group by group keep their accumulators in
``groups``. ``aggregate_user`` and ``groups_user`` do the same for aggregates that users wrote.

Windows that close group by group (``session``, ``span``) and ``running`` stand on ``groups``: a native
store (``native/window/window_store.c``, ``window_running.c``) keeps the accumulators of open things by
slot, ``native/window/window_session.c`` and ``window_span.c`` say which slot a row goes to, ``lag`` holds
earlier rows, ``groups_user`` users' aggregates, ``slot_results`` makes rows of them. ``top`` is top-N.
"""
