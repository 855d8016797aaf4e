"""What recovery costs and how fast it is, over real processes: one question a file, one command each.

    python -m bench.recovery            table.py: each method, rate, window and interval of checkpoints
    python -m bench.recovery.kills      100,000 rows/s, much state, the victim never comes back
    python -m bench.recovery.knob       a chain of boxes over K = 1 ... nodes: what the loss of one costs
    python -m bench.recovery.chaos      the failures of a published comparison of other systems

``methods`` says what must hold before a run counts, ``trial`` has nodes, rows at their pace and readers,
``workload`` the query and the account of its rows, ``losses`` kills and times, ``sheet`` keeps runs on disk
as they are made, ``command`` has what the commands share: options, and the table and plot beside the figures.
"""
