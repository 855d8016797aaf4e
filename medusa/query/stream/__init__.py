"""What users write: a stream, and the methods that add a box to it.

``stream`` puts the groups of methods together; each file has one group, as ``query.boxes``
has. ``window_steps`` and ``time_windows`` are the steps between a stream and its
aggregates.
"""
