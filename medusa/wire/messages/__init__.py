"""What nodes and clients say to each other: one struct per message, every field with its bounds.

One file for each subject. ``links_and_commands`` has the union of all. Who may say a message is decided
in ``medusa.nodes.messages``.
"""
