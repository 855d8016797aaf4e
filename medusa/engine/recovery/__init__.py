"""What a run decides outside of its data, and doing it again after a restart.

``decisions`` are the entries and their bytes, ``decision_log`` gathers and syncs them before a row
leaves, ``replay`` feeds them back, ``synced_length`` says how much of a log must be there.
"""
