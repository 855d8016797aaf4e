"""Names: which node has a query, a fragment, a stream. ``advertise`` writes what is here, ``lookup``
answers, ``definitions`` are streams without a query, ``startup_grace`` waits until "unknown" is an
answer.
"""
