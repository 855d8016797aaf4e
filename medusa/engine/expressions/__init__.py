"""Expressions over record batches.

``program`` compiles an expression for native code, which runs it in one pass; ``evaluate`` computes it
with pyarrow's kernels where it can't; ``box_expressions`` is what an operator asks: values, and the
rows that failed. Both ways give the same values and fail on the same rows. Operators import it; it
imports ``engine.core``.
"""
