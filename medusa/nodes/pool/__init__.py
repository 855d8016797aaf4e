"""Nodes that come and go: which of those in store should be started or let go, by what nodes tell. No IO.

``provider`` is the port to whoever starts and ends nodes; ``pool_keeper`` decides, ``warm_nodes`` how many
are kept up that have nothing to do, ``holding`` what keeps a node from being let go. Nodes know nothing of
it: ``medusa pool`` (``runtime/pool``) is a client of theirs.
"""
