"""What a run decides outside of its data, and doing it again after a restart.

``decisions`` are the entries and their bytes, ``decision_log`` gathers and syncs them before a row
leaves, ``replay`` feeds them back, ``synced_length`` says how much of a log must be there.

What a run decides outside its data goes into a log (docs/checkpoints.md). ``engine/logged_fragment`` is a
fragment that notes each decision after it has run to quiescence on it, and does those of an earlier life
again; ``replay`` keeps them and the rows that wait for them; ``decisions`` is what they look like,
``decision_log`` when they become durable, through the port ``Journal`` (``runtime/store/journal``);
``synced_length`` tells a torn end from damage by a mark of the synced length, for nodes' logs too. A
restore looks at everything first (``logs_of``, ``prepare_history``, ``Checkpoints.load``); files change
in one place behind all checks, at the end of ``restore`` in ``runtime/embedded/embedded_run``
(``FoundLogs.settle``, ``Connections.settle``, ``RunResources.sweep``). The interleaving of unions is noted at
the sources: given the same trains and boundaries in the same order, every box does the same.
"""
