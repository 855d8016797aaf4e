"""Which boxes hang together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

__all__ = ["connected"]


def connected(boxes: Iterable[tuple[str, Sequence[str]]]) -> list[list[int]]:
    """The connected parts of boxes, in time that grows with their arcs.

    Args:
        boxes: of each its name, and the names of what it reads.

    Returns:
        of each part which of ``boxes`` it has, in order; parts in the order of their first box.
    """
    leads: dict[str, str] = {}
    """Name -> another one of its part; the last one of a part leads to itself."""

    def last(name: str) -> str:
        way = []
        while leads.setdefault(name, name) != name:
            way.append(name)
            name = leads[name]
        leads.update(dict.fromkeys(way, name))
        return name

    names = []
    for name, read in boxes:
        names.append(name)
        for other in read:
            leads[last(other)] = last(name)
    parts: dict[str, list[int]] = {}
    for index, name in enumerate(names):
        parts.setdefault(last(name), []).append(index)
    return list(parts.values())
