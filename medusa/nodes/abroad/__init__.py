"""Fragments that run at a node of another participant, with their state, and guests of others that run here.

``permits`` says what may go where: the market puts them in and takes them out. ``moves`` has the face of all
of it: send, recall, give back, and what became of that. ``host_view`` is what a host is told of a query.
A move itself is one of ``nodes.recovery``: voters of the owner decide, and no other participant's node votes.
docs/moving.md tells the story. No IO.
"""
