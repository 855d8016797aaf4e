"""The gateway between Spark and nodes: what a stream gives waits here until Spark has committed it, and
what Spark writes until the node has it. ``gateway`` is the process; Spark's workers ask it by
``caller``.
"""
