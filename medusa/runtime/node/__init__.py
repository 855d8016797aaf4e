"""A node as a process: ``loop`` waits, brings what came to ``medusa.nodes.node`` and does what that wants.

``assembly`` puts a node together from its configuration; ``process`` is ``medusa node``. The loop
decides nothing.
"""
