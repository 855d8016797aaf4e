"""What is said between nodes and clients, and how it is kept exact: no IO, no clock.

``messages`` is what may be said, ``codec`` its bytes, ``limits`` what is accepted of either. ``link`` is one
stream between two ends, exactly once and in order. ``client_mind`` is a program's end of it, ``outbox`` the
effects that a driver performs, in order. ``statement`` is what participants sign,
``status_and_metrics`` what a node says of itself, each metric with its type. Nodes, clients and the
simulator import it; it knows no node.
"""
