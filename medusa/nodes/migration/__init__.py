"""A fragment goes from its owner to another node while rows flow.

``automaton`` has the states of both sides as tables (drawn in docs/moving.md). ``outgoing`` and
``state_sender`` are the owner's side, ``incoming``, ``state_receiver`` and ``standby`` the target's,
``rerouting`` what neighbours do, ``upstream_search`` what a reader does whose sender is silent.

``rerouting`` is what the nodes next to a moving fragment do: upstream (a further reader), downstream (a
stream that comes from elsewhere), the old owner (tells its readers), the coordinator (where parts may
be). ``nodes/fragment/upstreams`` reads what is on disk with the streams where they are now.
``nodes/streams`` brings what is said of one stream to the fragment that has it. What a node sends to
itself the driver loops back (``NodeLoop``), some messages a turn; to the brain (``own``) it is a peer
that is always there.
"""
