"""Remote definitions: parts of queries that another participant keeps ready, authorised in advance
(Medusa, NSDI'04).

``definitions`` is the side that asks, ``keeper`` the side that keeps; ``revocation`` and ``stopping``
see to it that what ends is heard of by the other side, whoever was away.

This is what two participants agree on. A new term (a price, say) begins in
``nodes/config/settings_offers``, which says what is offered; what is asked travels in
``wire/messages/remote``, ``nodes/deploy/admission`` alone takes or refuses it, and
``nodes/catalog/kept_definitions`` has what was agreed. ``expires`` is one to copy.
"""
