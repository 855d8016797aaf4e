"""Fragments of nodes that keep nothing on disk: what would be a checkpoint is a sealed cut at a neighbour."""
