"""Fragments of nodes with ``store = "memory"``: what would be a checkpoint is a sealed cut at a neighbour."""
