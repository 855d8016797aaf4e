"""SQL text to boxes: the same boxes as the builder makes.

``statements`` is ``md.sql``: ``read`` has sqlglot parse the text, ``select`` makes boxes of it, and the files
beside it those of one clause. What the text may ask for stands in tables: of windows with each kind of box
(``window_functions`` gathers them), of what is called in ``query/expressions/functions`` and
``query/expressions/aggregates``.
"""
