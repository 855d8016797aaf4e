"""A node whose fragments run on Spark, and a cluster that takes what a node has too much of.

``participant`` is the node: its host gathers elements and gives them to an ``executor`` trigger by trigger.
``remote_fragment`` cuts a fragment into shards as a split over nodes does (``sharding``), so state goes there
and comes back by the same functions; ``group`` runs a shard on a worker, ``on_spark`` is a trigger's job.
``medusa.cli`` starts it; nothing else imports it.

A participant is a node with another host: ``runtime/engine_host/gathering`` (``GatheringHost``) gathers
what the mind has it feed, and answers each element when its trigger has ended; the mind notices nothing.
Where fragments run is a port (``Elsewhere``, ``FragmentElsewhere``). ``remote_fragment`` cuts a fragment as a
split over nodes does (``sharding``, ``engine/regrouping``), so state goes there and comes back by what splits
and merges already do. The executor is a port too (``executor``): ``on_spark`` is a job for each trigger
whose rows are the states that the next one takes; tests have one that needs no Java.
``nodes/deploy/admission`` is the one place where a node decides whether it takes a fragment that is
offered; ``participant.reason`` is what a participant says there.
"""
