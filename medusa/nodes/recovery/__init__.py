"""A node that is lost, and how others go on in its place.

``agreement`` has the voters of a query decide on its next configuration, one number after the other;
``agreement_automaton`` is what a proposer and a voter may do, as tables.
"""
