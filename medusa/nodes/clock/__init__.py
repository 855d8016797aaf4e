"""What time it is, as the driver told it (``wall_clock``), and how long a name that was silent is known
(``expiry``).
"""
