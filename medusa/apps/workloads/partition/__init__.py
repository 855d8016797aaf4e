"""``medusa demo partition``: a node is cut off and its replica goes on (``partition_*``); then both are cut
off, and what is left answers tentatively (``tentative_*``).
"""
