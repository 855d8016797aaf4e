"""Queries come and go: all nodes take their fragments, or none keeps one.

``coordinator`` asks all nodes and installs or undoes; ``query_plan`` reads and cuts what a client sent;
``admission`` decides what is taken of what others bring, ``background_parsing`` has large graphs read
beside the loop; the reads across queries and owners are settled before. ``passed_on`` brings what clients
ask of a node that doesn't coordinate a query to the one that does.

A node reads what could be large beside its loop: ``background_parsing`` has the queue and its bounds, and
asks for one graph at a time (``Parse``); ``runtime/node/graph_parser`` reads it in a thread, and the
request goes on with what came of it. While it does, threads change places ten times as often
(``runtime/machine/short_turns``). What follows on the loop uses what was found there: a ``FragmentSpec``
keeps its checked graph until its ``FragmentHost`` is made (``taken``), and its msgpack (``packed``), since
the catalog is written whole.
"""
