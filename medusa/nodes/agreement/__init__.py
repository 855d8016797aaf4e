"""How the nodes of a query agree on its next configuration, whoever is lost meanwhile. No IO.

It owns the *configuration* of each query with standbys, as this node knows it (who owns each guarded
fragment, who may succeed, who votes): ``agreement`` proposes, counts votes and tells, ``voter`` is what this
node says as one, ``reentry`` has it vote again after it has lost that, ``changes`` makes what is to follow.
Its automata are in ``automaton`` (one proposal, one voter). What is done by a configuration is in
``nodes.recovery``, which alone imports it; it imports ``nodes.catalog``.
"""
