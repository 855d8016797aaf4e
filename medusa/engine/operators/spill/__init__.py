"""State of keyed operators that lies partly on disk (a hybrid hash join's partitions).

``spill_box`` routes rows to ``spill_parts``; a part is in memory or on disk (``spill_part``); what
differs by operator is a ``spill_kind``. Windows have their own form
(``engine/operators/windows/window_spill*``), since groups merge there.

``engine/core/memory_bounds`` asks boxes to ``spill``. Where a run has a bound of memory, those for which
``engine/operator_kinds`` names a ``SpillKind`` are made as a ``SpillBox``: the plain box, or ``spill_parts``
over many of them. The ``SpillKind`` (``spill_kind``; ``spill_kinds``, ``spill_join``, ``spill_table``) says
its keys, its order, and how the tables of its state are taken apart and put together, which ``spill_state``
does.
"""
