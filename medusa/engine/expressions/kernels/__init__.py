"""One function of an expression each, over columns, by subject: casts, logic, numbers, texts, points of
time.

``kernel`` says how they are made and called, and how they say which rows failed. Only
``engine.expressions.evaluate`` imports it.
"""
