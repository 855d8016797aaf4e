"""In how many parts a box should run: from what was measured, by true processing rates. Pure, and nothing
acts on it by itself yet: ``runtime/client/status/scale_plan`` shows what it says.

``true_rates`` says how much each box has to do at the rates that sources offer; ``policy`` decides when that
is worth a split or a merge.
"""
