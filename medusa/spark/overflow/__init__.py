"""A node whose fragments run on Spark, and a cluster that takes what a node has too much of.

``participant`` is the node: its host gathers elements and gives them to an ``executor`` trigger by trigger.
``remote_fragment`` cuts a fragment into shards as a split over nodes does (``sharding``), so state goes there
and comes back by the same functions; ``group`` runs a shard on a worker, ``on_spark`` is a trigger's job.
``accept`` says what a participant takes. ``medusa.cli`` starts it; nothing else imports it.
"""
