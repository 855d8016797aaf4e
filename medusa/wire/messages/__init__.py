"""What nodes and clients say to each other: one struct per message, every field with its bounds.

One file for each subject. A new message: its struct in the file of its subject and its row in
``medusa.nodes.message_table``, which decides who may say it; ``message_union`` finds it by itself. What a
node or client asks and is answered is in ``commands``, with its ``Reply``; what nodes say now and then
unasked in ``load``.
"""
