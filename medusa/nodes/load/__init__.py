"""How much a node, its fragments and its links have to do, smoothed; and when that is too much. It decides
nothing.

How much a node has to do (docs/brain.md) is known in ``loads``: what the engine told of boxes, the driver
of its process (``runtime/machine/usage``; virtual in the simulator) and ``link_loads`` of links, smoothed
by ``engine/qos/rates``; ``overload`` judges it, ``wire/messages/load`` tells peers.
``nodes/status/blocking_reasons`` says what each box waits for, from boundaries and links alone, so the
engine does nothing for it. ``runtime/client/status/overview`` and ``runtime/client/status/status_tables``
are how clients see all that.
"""
