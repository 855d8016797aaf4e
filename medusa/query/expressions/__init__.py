"""Expressions: columns, literals, calls, casts, choices, and nothing else.

``expression`` is the typed tree, ``column`` writes one in Python, ``parse`` reads one from SQL text,
``functions`` is the closed list of functions with their type rules (``rules``, ``rules_text``,
``operands``). Aggregates, grouping and keys of joins, which are written with expressions, stand here
too.
"""
