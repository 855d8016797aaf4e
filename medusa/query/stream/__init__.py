"""What users write: a stream, and the methods that add a box to it.

``stream`` has all methods; each other file has the boxes of one group, as ``query.boxes`` has, made after an
``output``. ``window_steps`` and ``time_windows`` have the steps between a stream and its aggregates;
``several`` has what begins with no stream in particular.
"""
