"""Graphs for people: ``explain`` as a text tree, ``diagram`` as SVG and Mermaid, ``describe`` a box in one
line.
"""
