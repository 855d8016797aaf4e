"""What the statuses of several nodes say together. Pure; ``statuses`` beside this folder asks for them.

``overview`` puts the parts of a query together, ``status_tables`` makes Arrow tables,
``guarded_fragments`` says who stands by for what, ``unread_sinks`` what keeps published rows from being
durable. Imported by the rest of ``runtime.client`` and by ``cli``.
"""
