"""The operators: how each kind of box of ``medusa.query.boxes`` runs.

One file each. Here are those that look at one row at a time, the ends of a query (``source``,
``sink``), users' functions (``apply``, ``process``) and the two around a box that was split
(``key_router``, ``ordered_merge``); below are windows, joins, order, and state that lies partly on disk
(``spill``). An operator is given elements and gives elements; it knows no other operator's instance, no
clock and no file. ``medusa.engine.operator_kinds`` is the table of them, by which ``medusa.engine.compile``
makes them.

- ``query/boxes/flow``, ``query/boxes/order``, and files of the same names in ``query/stream``: route, drops,
  distinct; sunion, sorts, resample. Here is one file each; ``wsort_rule`` is the rule of WSort alone.
- ``engine/core/row_buffer`` holds rows until a boundary passes them (``TimedRowBuffer``) or until they are
  asked for by position (``PositionedRows``); ``engine/core/group_numbers`` numbers keys and orders values;
  ``native/order/order.c`` decides what leaves a bounded sort.
- Ports: ``BoxData.ports`` are always there; taps (``graph.taps_of``: ``dead``) only where something
  reads them. ``DeadLetters.tap`` sends every failed row on, of any box that reports through ``Columns``
  or ``DeadLetters.add``.

``Site.workers`` (the port ``Workers``; ``runtime/machine/native_workers``) reaches boxes that can run in
copies over disjoint keys: ``engine/operators/windows/window_parts`` and ``engine/operators/joins/join_parts``
have the methods of the native ``Window`` and ``Join`` over N of them. ``native/keys/split.c`` says to which
copy each row goes, ``native/arrow/merge.c`` merges what they give by positions that the copies carry, by
ranges, so that merging is shared too. Copies of a join make steps, and what leaves is what no copy can
still give something before. Their state is that of one copy. ``runtime/machine/run_lock`` lets callers of
a run stand in line. To users: ``docs/threads.md``.
"""
