"""Remote definitions: parts of queries that another participant keeps ready, authorised in advance
(Medusa, NSDI'04).

``definitions`` is the side that asks, ``keeper`` the side that keeps; ``revocation`` and ``stopping``
see to it that what ends is heard of by the other side, whoever was away.
"""
