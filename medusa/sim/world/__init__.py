"""What a simulated world is made of: virtual time, a network, machines, disks and clocks that fail as they
are told.

``fault_kinds`` is the table of what can go wrong: how a seed draws it, and what it does to whom.
"""
