"""How a query runs on one site, given elements in an order: no clock, no thread, no file.

``fragment`` runs the boxes of a graph until nothing is left to do; ``compile`` makes them, ``run`` numbers
what comes in and out, ``scheduler`` says who is next. Operators are in ``operators``, what they share in
``core``. The same elements in the same order give the same rows, on every machine: recovery, replicas and the
simulator stand on that. This is the only package that calls ``medusa._native``. An embedded run, a node, the
simulator and Spark's workers drive it.
"""
