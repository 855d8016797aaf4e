"""A query over DataFrames: ``md.spark.batch``. ``compile`` makes steps of a graph, ``step`` runs one on a
worker.

``spark/support`` says how each kind of box runs. ``compile`` makes steps over DataFrames of a graph:
boxes on single rows wait until somebody needs their rows (``stream``), boxes with keys become the parts
that ``query/rewrite/split`` makes, and what the merge of a split would sort by Spark sorts by; other
boxes run in one task. ``step`` is what a worker does: msgpack in, a ``Fragment`` of judged sources, fed
rows in order with boundaries between them. ``source`` judges lateness in Spark's own terms and gives
every row its boundary. Nothing of it needs ``_seq`` dense: only the order of positions counts. pyspark is
imported in functions alone.
"""
