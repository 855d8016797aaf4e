"""The commands about in how many parts boxes run, and at which nodes.

split  ``medusa split``, ``merge`` and ``scale``
pool   nodes that come and go
"""
