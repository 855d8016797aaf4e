"""Nodes that split and merge a box by themselves, under faults: what its rows cost, the trial, and what is
looked at. ``medusa.sim.scenarios`` has it; nothing else imports it."""
