"""What a simulated world is made of: virtual time, a network, machines, disks and clocks that fail as they
are told.
"""
