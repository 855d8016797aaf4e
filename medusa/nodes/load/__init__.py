"""How much a node, its fragments and its links have to do, smoothed; and when that is too much. It decides
nothing.
"""
