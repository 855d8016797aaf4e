"""Functions and classes of users, called and checked: ``calls`` looks at what they give back, ``answers``
keeps it for a log, ``key_state`` is the object that a class gets for each key, ``process_*`` gathers
what a step gave.

A box names a function by name and version (``query/user_registry``); one that isn't registered lies
beside the graph (``Query.functions``, by box) and reaches the box through its ``Site``. What a function
returns is checked in ``calls``. ``engine/operators/apply`` calls at once, or through the port ``Tasks``
(``runtime/machine/event_loop``, an event loop); the fragment asks ``poll`` and ``wait`` for what calls
gave. ``engine/operators/process`` groups ready rows by key and runs each key's rows and timers by itself;
``key_state`` is what a user sees, ``process_output`` puts the output of a step in order,
``process_state`` is its table in a checkpoint. A keyed table is one box that takes all updates
(``engine/operators/joins/table``; the builder adds an input for each) and sends its changes to look-ups
(``engine/operators/joins/lookup``), each with a copy of the table (``keyed_table``): no state is shared
between boxes, so graphs stay plain and every box restores by itself.
"""
