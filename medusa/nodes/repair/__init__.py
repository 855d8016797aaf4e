"""A node whose disk lost something: what is in doubt, and how it becomes certain again.

``doubtful_parts`` finds it when a node starts, ``medusa.nodes.catalog.in_doubt`` keeps it, ``resolution``
asks peers, ``operator_decisions`` is what ``medusa repair`` may decide.
"""
