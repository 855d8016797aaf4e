"""One stream from one sender to one receiver, exactly once and in order: no IO, no clock.

``automaton`` is the link as two tables (drawn in docs/protocol.md), ``sender`` and ``receiver`` are its
ends, ``output_log`` keeps rows until all receivers hold durably what came of them, ``session`` says
whether the peer is there. Nodes, clients and the simulator drive the same code.
"""
