"""What nodes and clients say to each other: one struct per message, every field with its bounds.

One file for each subject; ``message_union`` makes the union. Who may say a message is decided
in ``medusa.nodes.message_table``.
"""
