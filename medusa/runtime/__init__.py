"""IO: what performs the effects of runs and nodes with files, sockets, threads and a clock.

``embedded`` is ``md.start``: a run in a program. ``client`` is ``md.connect``. ``node`` is ``medusa node``: a
loop that drives ``medusa.nodes``, whose fragments run in the thread of ``engine_host``; ``transport`` carries
its messages by ZeroMQ, ``store`` keeps its files, ``repair`` looks at them before they are used. It decides
nothing that a node decides.
"""
