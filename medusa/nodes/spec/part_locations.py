"""Where the boxes of a query are, as the catalog lists its fragments. Pure.

A fragment is as the catalog tells it: ``name``, ``query``, ``node``, ``boxes``, ``streams``, ``feeds``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["PartLocations", "having", "parted"]

Told = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PartLocations:
    """A box that is split.

    Attributes:
        router: the fragment that has its router.
        parts: fragment of each part -> its node, in the order of their ranges.
        merges: fragments that have its merges -> their nodes.
    """

    router: Told
    parts: dict[str, str]
    merges: dict[str, str]


def having(query: str, box: str, fragments: Sequence[Told]) -> list[Told]:
    """The fragments of a query that have a box, and not those that only read what it sends."""
    found = [each for each in fragments if each["query"] == query and box in each["boxes"]]
    stream = f"{query}.{box}"
    sends = [each for each in found if any(f"{s}.".startswith(f"{stream}.") for s in each["streams"])]
    return sends or [each for each in found if box not in each.get("feeds", ())]


def parted(query: str, box: str, fragments: Sequence[Told]) -> PartLocations | None:
    """Where the parts of a box are, as far as is known; None: it isn't split."""
    of = re.compile(re.escape(f"{query}.{box}-") + r"(router(?:-left)?|[1-9][0-9]*)(?:\.[^.]+)?")
    streams, found = {}, [each for each in fragments if each["query"] == query]
    for each in found:
        for stream in each["streams"]:
            if (which := of.fullmatch(stream)) is not None:
                streams[which[1].removesuffix("-left")] = each
    router = streams.pop("router", None)
    first = f"{box}-1"
    merges = {
        each["name"]: each["node"]
        for each in found
        if each not in (router, *streams.values())
        and box in each["boxes"]
        and any(id == first or id.startswith(f"{first}-") for id in each["boxes"])
    }
    numbers = sorted(map(int, streams))
    if router is None or not merges or not numbers or numbers != [*range(1, numbers[-1] + 1)]:
        return None
    parts = {streams[str(number)]["name"]: streams[str(number)]["node"] for number in numbers}
    return PartLocations(router, parts, merges)
