"""Runs the fragments of a node beside its loop, so that heartbeats go on meanwhile.

``host`` is a thread that takes jobs and says what became of them (``medusa.nodes.reports``); ``fair_turns``
shares it between owners and queries, ``budgets`` bounds what they hold, ``slice_watch`` their calls;
``openings`` makes large fragments aside, ``forks`` second instances of those that run.

``host`` runs all fragments of a node in one thread. What a fragment has to do stands in its ``Slices``;
whose turn it is says ``fair_turns`` (fair queueing by CPU time: owners, their queries, their fragments),
one step at a time: a slice of an element (``engine/sliced_fragment``), or a job between two. Jobs for the
host itself (open, close, who owns what) are done as they come, so a removal waits for one piece. After
each piece the host asks what the fragment holds (``Fragment.used_bytes``); ``budgets`` adds up by query
and owner (``outbox.Owned``) and says who is over; ``slice_watch`` sees pieces that held the thread too
long. Who is over becomes a ``Failed`` with a code, and ``nodes/remote/stopping`` ends it as it ends what
the owner of a node stops: gone from the catalog, told to its coordinator until that has heard. A fragment
that takes long to make (``openings``: many boxes, much state) is made in a thread beside, one at a time
and by owners in turn, and what was given for it waits. What a graph will take is told from itself
(``engine/core/graph_size``) and counted before the fragment is made; ``repartition_jobs`` splits, merges
and weighs. A job that raises ends its thread and with it the node. What is kept of output for receivers
is bounded by waiting (``all_full``), never by ending. ``host_disk`` is the disk's
thread.
"""
