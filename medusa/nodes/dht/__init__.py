"""The catalog between participants: a distributed hash table of signed entries (Chord's ring). Pure.

``member`` is one of its members; ``routing_table``, ``search``, ``put``, ``replication`` and
``storage`` are its parts. ``medusa.nodes.names.participant_catalog`` is what a node does with it.
"""
