"""Fragments that survive the loss of their node: secondaries, succession, switching. No IO.

It owns the *configuration* of each query with standbys (who owns each guarded fragment, who may succeed,
who votes), the links by which owners keep secondaries up to date (``replication`` sends, ``followings``
receives; to a passive standby checkpoints: ``checkpoint_shipping``, ``held_checkpoint``), and the takeover
(``succession`` decides that it is due, ``agreement`` has the voters decide), also one that is ordered while
the owner lives (``handovers``). What may be wished for is in ``query/recovery``, what is promised then in
``nodes/fragment/durability``. Automata: ``replication_automaton`` (one secondary as its owner sees it) and
``agreement_automaton`` (one proposal). Imported by ``nodes.node`` and ``nodes.move_orders``; it imports
``nodes.fragment``, ``nodes.migration`` (which sends and receives state) and ``nodes.catalog``.
"""
