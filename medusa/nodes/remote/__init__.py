"""Remote definitions: parts of queries that another participant keeps ready, authorised in advance
(Medusa, NSDI'04).

``definitions`` is the side that asks, ``keeper`` the side that keeps; ``revocation`` and ``stopping``
see to it that what ends is heard of by the other side, whoever was away.

This is what two participants agree on. A new term (a price, say) is a field of ``Terms`` and of the messages
beside it in ``wire/messages/remote``; both sides keep it in ``nodes/catalog/kept_definitions`` by its name.
What is offered, and whether what is asked is within that, stands in ``nodes/config/settings_offers``.
``expires`` is one to copy.
"""
