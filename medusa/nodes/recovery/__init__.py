"""Fragments that survive the loss of their node: secondaries, succession, switching. No IO.

It does what the *configuration* of a query says, on which its nodes agree (``nodes.agreement``). It owns
the links by which owners keep secondaries up to date (``replication`` sends, ``followings`` receives; to a
passive standby checkpoints: ``checkpoint_shipping``, ``held_checkpoint``), and the takeover: ``proposals``
says that it is due, ``nodes.agreement`` has the voters decide, ``succession`` does it; also one that is
ordered while the owner lives (``handovers``). What may be wished for is in ``query/recovery``, what is
promised then in ``nodes/fragment/durability``. Its automaton is ``replication_automaton`` (one secondary as
its owner sees it). Imported by ``nodes.node`` and ``nodes.move_orders``; it imports ``nodes.fragment``,
``nodes.migration`` (which sends and receives state), ``nodes.agreement`` and ``nodes.catalog``.
"""
