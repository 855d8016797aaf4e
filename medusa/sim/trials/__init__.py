"""Scenarios that draw their options and faults from a seed, run, and hand what happened to the checkers."""
