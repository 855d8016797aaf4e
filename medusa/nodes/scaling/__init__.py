"""In how many parts a box should run, and what a node does so that it does: from what was measured, by true
processing rates.

``true_rates`` says how much each box has to do at the rates that sources offer, ``measured_boxes`` reads that
out of statuses; ``policy`` decides when it is worth a split or a merge. ``node_scaler`` asks nodes and gives
orders, ``query_scaler`` decides on one query by ``next_step``. All of it is only asked where the node's
configuration has ``[scale]``; ``runtime/client/status/scale_plan`` shows what it would say.
"""
