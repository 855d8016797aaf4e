"""A network that is ours to cut, between processes of one machine: for demonstrations and tests.

``net`` makes hosts of network namespaces and ``router`` carries their packets; ``relays`` carries the bytes
of connections where namespaces aren't allowed; ``hosts`` is what a demonstration asks of either.
"""
