"""The gateway between Spark and nodes: what a stream gives waits here until Spark has committed it, and
what Spark writes until the node has it. ``gateway`` is the process; Spark's workers ask it by
``caller``.

``spark/data_source_reader`` and ``data_source_writer`` are what Spark's data source does, without
pyspark: so a fake Spark drives them in ``make test``, over a disk that dies at every step, and in every
order of what two drivers ask (``tests/gateway``). They ask a gateway (``caller``, ``requests``): every
request can be asked again. ``handlers`` answers and never waits; what nodes have to say comes by
``workers``, a thread for each reader and each source. ``reader_log`` holds rows that were read, in the
records of histories; Spark sees, and the node has acknowledged, only what is synced. ``staging`` holds what
tasks wrote; one record of its journal publishes an epoch and numbers its rows (``journal``), and ``delivery``
sends from the number on that the node says, by a named publisher: the numbers are the same on both sides.
"""
