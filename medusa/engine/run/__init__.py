"""The parts of a run that need no IO; ``medusa.runtime.embedded.run`` puts them together.

``gate`` says who may work, and when. Rows come in by an ``intake`` (``direct_intake``, or the queue of
``runtime.embedded``) and leave by ``output``. ``at_rest`` is what follows whenever the query has come to
rest; ``checkpoints`` writes what a restore goes on from; ``run_warnings`` tells of late and dead rows.
A part is given the parts it stands on, and none knows the run, so nothing keeps a lost run alive.
"""
