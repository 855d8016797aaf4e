"""Where boxes shall stand: ``placement`` cuts a query into fragments, ``balance`` puts pieces on nodes,
``estimating`` says what they will cost, ``repartition_plan`` what becomes of fragments when a box is
split. Pure.
"""
