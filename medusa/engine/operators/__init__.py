"""The operators: how each kind of box of ``medusa.query.boxes`` runs.

One file each. Here are those that look at one row at a time, the ends of a query (``source``,
``sink``), users' functions (``apply``, ``process``) and the two around a box that was split
(``key_router``, ``ordered_merge``); below are windows, joins, order, and state that lies partly on disk
(``spill``). An operator is given elements and gives elements; it knows no other operator's instance, no
clock and no file. ``medusa.engine.compile`` makes them.
"""
