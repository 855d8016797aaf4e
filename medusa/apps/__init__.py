"""Applications on the library: nothing below imports them.

``dashboard`` is ``medusa dashboard``, ``pipeline`` archives streams and prepares them with Spark,
``workloads`` are the demos and what they and the benchmarks feed.
"""
