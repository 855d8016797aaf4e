"""Queries come and go: all nodes take their fragments, or none keeps one.

``coordinator`` asks all nodes and installs or undoes; ``query_plan`` reads and cuts what a client sent;
``admission`` decides whether a fragment is taken, ``background_parsing`` has large graphs read beside the
loop; the reads across queries and owners are settled before.
"""
