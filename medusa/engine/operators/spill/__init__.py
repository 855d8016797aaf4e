"""State of keyed operators that lies partly on disk (a hybrid hash join's partitions).

``spill_box`` routes rows to ``spill_parts``; a part is in memory or on disk (``spill_part``); what
differs by operator is a ``spill_kind``. ``spillable`` says which boxes are made this way when a run has
a bound of memory. Windows have their own form (``operators.windows.window_spill``), since groups merge
there.

``engine/core/memory_bounds`` asks boxes to ``spill``. A window has its own way
(``engine/operators/windows/window_spill*``). Other boxes with keys are made by
``engine/operators/spill/spillable`` as
a ``SpillBox``: the plain box, or ``spill_parts`` over many of them. What differs by kind is a ``Kind``
(``spill_kind``; ``spill_kinds``, ``spill_join``, ``spill_table``): its keys, its order, and how the
tables of its state are taken apart and put together, which ``spill_state`` does.
"""
