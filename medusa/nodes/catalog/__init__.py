"""What a node knows durably, and what the nodes of a participant know of each other.

``catalog`` is this node's own, kept as a small file (``persistence``); ``directory`` is replicated to
every node by ``anti_entropy``; ``entry_bodies`` checks what others wrote into it. ``kept_moves`` and
``kept_definitions`` are the parts that moves and remote definitions leave.
"""
