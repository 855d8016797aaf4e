"""A market of up to ten thousand participants in virtual time: does it come out well, and for everybody?

Every participant is a ``medusa.market`` trader, driven as a node drives it; only clock, messages and moves
are simulated.

    setup        options and their checks       graphs       who has contracts with whom
    population   machines, costs, tasks         world        events, messages, moves, liars
    books        who runs what, who pays        optimum      the least that it could cost
    allocation   thresholds, what is wasted     auction      what it is compared with
    run          one market to its figures      experiments  the questions; ``report``, ``plots``
    liars        what lying gains               game         a user's own place in it
"""
