"""A fragment goes from its owner to another node while rows flow.

``automaton`` has the states of both sides as tables (drawn in docs/moving.md). ``outgoing`` and
``state_sender`` are the owner's side, ``incoming``, ``state_receiver`` and ``standby`` the target's,
``rerouting`` what neighbours do, ``upstream_search`` what a reader does whose sender is silent.
"""
