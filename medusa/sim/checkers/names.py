"""After all faults have ended, every node finds every name where it is."""

from __future__ import annotations

from collections.abc import Iterable

from medusa.sim.actors.node import NodeMachine

__all__ = ["names_agree", "wrong_names"]

LOOKED_AT_MAX = 20
"""Directories compared name by name; the others have the same digest."""

KINDS = ("fragment", "stream", "source")


def names_agree(nodes: Iterable[NodeMachine]) -> bool:
    """Whether all directories have seen the same."""
    return len({node.brain.naming.directory.digest() for node in nodes}) <= 1


def wrong_names(nodes: Iterable[NodeMachine]) -> str:
    """What the first directory that is wrong lacks and believes; empty: all are right."""
    living = [node for node in nodes if node.alive]
    truth = {
        (kind, name, node.name)
        for node in living
        for fragment in node.brain.catalog.fragments.values()
        for kind, names in (
            ("fragment", [fragment.name]),
            ("stream", list(fragment.streams.values())),
            ("source", list(fragment.entries.values())),
        )
        for name in names
    }
    truth |= {("node", node.name, node.name) for node in living}
    for node in living[:LOOKED_AT_MAX]:
        directory = node.brain.naming.directory
        said = {(e.kind, e.name, e.writer) for kind in (*KINDS, "node") for e in directory.standing(kind)}
        if said != truth:
            return (
                f"{node.name} doesn't know {sorted(truth - said)[:3]}, "
                f"and believes {sorted(said - truth)[:3]}"
            )
    return ""
