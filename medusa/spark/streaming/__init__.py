"""A query over streaming DataFrames: ``md.spark.stream``. ``stages`` cuts a graph into stateful steps,
``stage`` is a group of one on a worker, ``spark_windows`` uses Spark's own operators instead
(``semantics="spark"``).
"""
