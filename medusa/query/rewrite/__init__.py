"""Graphs to graphs: ``split`` makes n parts of a box with a router and a merge (Aurora*, CIDR'03, 2.3);
``key_ranges`` are the ranges of the hash by which rows are routed.
"""
