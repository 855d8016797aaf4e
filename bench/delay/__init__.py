"""Question: is there an answer within X while an input is missing, and how fast is all corrected?

    python -m bench.delay                     every experiment, its short form: at most 20 minutes
    python -m bench.delay sweep --long        one of them, with all its lengths; see --help

The experiments of the authors of Borealis (SIGMOD 2005, TODS 2008, and the scripts that came with their
code), and those of our own that say what it costs. Each has a table, ours beside what they logged, a plot,
and what has to be so, printed as held or not; the exit code is 1 where something isn't.

``experiments`` says what fails when and what must come of it, ``streams`` the query and where it runs,
``rig`` has the nodes, the rows and the failures, ``account`` what came, ``logged`` the authors' figures,
``policies`` the six of them, ``cuts`` the join at 100,000 rows/s, ``costs`` what ``delay=`` costs while
nothing fails, ``baseline`` the fork beside checkpoint/redo (``redo_node``) in virtual time, ``command`` the
command line, ``shown`` tables and plots.

Not done: a failure as theirs, of whom the stream goes on and only its boundaries stop (here the node of a
stream fails, so its rows come when it is back); machines of their own.
"""
