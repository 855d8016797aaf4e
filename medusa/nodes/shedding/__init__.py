"""Overload of a node that nobody takes: rows are left out at the inputs of its fragments, where that costs
the outputs least.

``node_work`` is what all fragments here have to do together, by what was measured; ``node_shedder`` decides
by it how much is left out of which source, and tells the fragments. What may be left out at all stands in
the graphs of the fragments (``nodes/placement/shedding_plan``). docs/shedding.md says the rules.
"""
