"""Fragments of nodes with ``store = "memory"``: no checkpoint is kept; neighbours keep
positions for them, as sealed cuts."""
