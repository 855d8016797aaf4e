"""A query over DataFrames: ``md.spark.batch``. ``compile`` makes steps of a graph, ``step`` runs one on a
worker.
"""
