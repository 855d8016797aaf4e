"""Runs the fragments of a node beside its loop, so that heartbeats go on meanwhile.

``host`` is a thread that takes jobs and says what became of them (``medusa.nodes.reports``); ``fair_turns``
shares it between owners and queries, ``budgets`` bounds what they hold, ``slice_watch`` their calls;
``openings`` makes large fragments aside.
"""
