"""State of keyed operators that lies partly on disk (a hybrid hash join's partitions).

``spill_box`` routes rows to ``spill_parts``; a part is in memory or on disk (``spill_part``); what
differs by operator is a ``spill_kind``. ``engine.operator_kinds`` says which boxes are made this way when a
run has a bound of memory. Windows have their own form (``operators.windows.window_spill``), since groups
merge there.
"""
