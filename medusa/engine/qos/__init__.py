"""Quality of service, measured: utility by delay and its inference through boxes (``delay_utility``), what
outputs are worth as they leave (``output_utility``), what boxes cost (``box_costs``), and how fast counts
grow (``rates``). It decides nothing.

``query/qos`` is what a sink says (checked whole as it is made, so also when read), ``delay_utility``
piecewise linear functions and their inference inward, ``output_utility`` the meter of a sink: rows leave
by the clock of the run, and ``Now.entered_us`` is when what caused them entered.
``engine/overload/qos_scheduler`` keeps queues before boxes across steps, with entry times beside the
elements, and ``box_costs`` what boxes were measured to take; a fragment is given one as ``scheduler=``.
``runtime/embedded/ordered_worker`` drives it: the thread of a queued run takes rows in whenever some have
come, and otherwise makes steps. ``tests/trace`` does the same in virtual time.
"""
