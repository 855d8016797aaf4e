"""A box of a deployed query becomes parts, and one again, while rows flow.

``coordinator`` agrees on it, ``automaton`` has its states, ``catch_up`` lets the successors follow what
they replace, ``successor`` takes over state, inputs and readers, ``completed_orders`` makes an order
that comes twice do nothing. ``followers_room`` asks those that stand by.
"""
