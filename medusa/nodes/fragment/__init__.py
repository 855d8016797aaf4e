"""One fragment on its node: what comes in is fed in order, what comes out is kept and sent on.

``host`` is the whole; ``inputs`` and ``published_sources`` feed ``input_queue``, ``input_log`` has on
disk what was fed before anything that came of it leaves, ``outputs`` numbers and keeps what leaves,
``checkpoint_record`` is what a checkpoint holds beside the engine's state. ``durability`` is the policy of a
fragment: what must be true before rows leave it, and before its input is acknowledged. Moves, splits and
recovery take their parts from here.
"""
