"""What a node calls the groups of files in its data folder.

node-N, node-copy-N    the catalog, number N, twice
HASH-N                 a checkpoint of the fragment whose name has this hash
HASH-log-N             a segment of its output
HASH-begun-N           it has had a checkpoint: one that has none now has lost it
life-N, life-copy-N    the number of the last life, twice
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import blake2b

__all__ = [
    "GroupName",
    "begun_name",
    "catalog_names",
    "group_name",
    "group_token",
    "life_names",
    "owner_of",
    "segment_name",
]

NODE_GROUP = "node"
COPY = "copy"
SEGMENT = "log"
BEGUN = "begun"

_KINDS = {None: "checkpoint", SEGMENT: "output segment", BEGUN: "first checkpoint mark"}
_CATALOG = re.compile(rf"{NODE_GROUP}(-{COPY})?-(\d{{12}})")
_LIFE = re.compile(rf"life(?:-{COPY})?-(\d{{12}})")
_FRAGMENT = re.compile(rf"([0-9a-f]{{24}})(?:-({SEGMENT}|{BEGUN}))?-(\d{{12}})")


@dataclass(frozen=True, slots=True)
class GroupName:
    """What the name of a group says.

    Attributes:
        kind: ``catalog``, ``checkpoint``, ``output segment``, ``first checkpoint mark``, ``life`` or
            ``unknown``.
        owner: of a fragment's group, the hash of the fragment's name; else empty.
        number: its token, or the number of the life; 0: unknown.
    """

    name: str
    kind: str
    owner: str = ""
    number: int = 0

    @classmethod
    def of(cls, name: str) -> GroupName:
        """Read a name; one that no node gives is ``unknown``."""
        if found := _CATALOG.fullmatch(name):
            return cls(name, "catalog", number=int(found[2]))
        if found := _LIFE.fullmatch(name):
            return cls(name, "life", number=int(found[1]))
        if found := _FRAGMENT.fullmatch(name):
            return cls(name, _KINDS[found[2]], owner=found[1], number=int(found[3]))
        return cls(name, "unknown")


def owner_of(fragment: str) -> str:
    """The hash that begins the names of a fragment's groups."""
    return blake2b(fragment.encode(), digest_size=12).hexdigest()


def group_name(fragment: str, token: int) -> str:
    """The group of a checkpoint; empty ``fragment``: of the node itself. Safe for any name."""
    return f"{owner_of(fragment) if fragment else NODE_GROUP}-{token:012d}"


def catalog_names(token: int) -> tuple[str, str]:
    """The two groups of a catalog: either is enough."""
    return group_name("", token), f"{NODE_GROUP}-{COPY}-{token:012d}"


def life_names(number: int) -> tuple[str, str]:
    """The two groups of the number of a life: either is enough, for their names say it all."""
    return f"life-{number:012d}", f"life-{COPY}-{number:012d}"


def group_token(fragment: str, name: str) -> int | None:
    """The token in the name of a checkpoint of this fragment, or of a catalog; None: it is another's."""
    found = GroupName.of(name)
    if fragment:
        return found.number if (found.kind, found.owner) == ("checkpoint", owner_of(fragment)) else None
    return found.number if found.kind == "catalog" else None


def segment_name(fragment: str, token: int) -> str:
    """The group of a segment of the output of a fragment."""
    return f"{owner_of(fragment)}-{SEGMENT}-{token:012d}"


def begun_name(fragment: str, token: int) -> str:
    """The group that says that a fragment has had a checkpoint."""
    return f"{owner_of(fragment)}-{BEGUN}-{token:012d}"
