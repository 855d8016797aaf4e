"""``medusa demo``: each demonstration as its run, its outcome and its screen. ``workloads.partition`` has one
more.
"""
