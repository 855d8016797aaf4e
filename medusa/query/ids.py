"""Names of boxes: the rule for those that users give, and stable ones for the others."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from hashlib import blake2b

import msgspec

from medusa.errors import QueryError
from medusa.query.boxes import Box, BoxData, Input, Source

__all__ = ["check_name", "kind_of", "stable_id"]

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")


def check_name(name: object, *, what: str) -> str:
    """A name of a query, box, source or sink: a letter, then letters, digits, ``_`` and ``-``; up to 64.

    Raises:
        QueryError: it isn't.
    """
    if isinstance(name, str) and _NAME.fullmatch(name):
        return name
    shown = repr(name[:80]) if isinstance(name, str) else f"{type(name).__name__} {name!r}"[:80]
    raise QueryError(
        f"{what}: {shown} can't be a name",
        hint="a letter or _, then letters, digits, _ and -, up to 64 characters",
        code="query.name",
    )


def kind_of(box: BoxData | type[BoxData]) -> str:
    """``source``, ``filter``, ``with_columns`` ...: the tag of the box, or of its class."""
    return str(box.__struct_config__.tag)


def stable_id(box: Box, above: Mapping[str, Box], taken: Collection[str]) -> str:
    """The id of a box without a name: kind, ordinal and a hash, e.g. ``filter-1-3fa2``.

    The ordinal counts boxes of this kind along the longest input path (the first of several equally
    long); the hash is over the box's own parameters and the names of the sources above it. So an id
    doesn't change when another part of the query does. Identical twins get ``-2``, ``-3`` ... in
    order of definition.

    Args:
        box: its ``id`` is ignored.
        above: every box before it, by id.
        taken: ids already given.
    """
    kind = kind_of(box)
    depth, counts = _paths(above)
    longest = max(box.inputs, key=lambda arc: depth[arc.box], default=None)
    ordinal = 1 + (counts[longest.box].get(kind, 0) if longest else 0)
    digest = blake2b(_parameters(box) + b"\n" + _sources(box, above).encode(), digest_size=2).hexdigest()
    made = f"{kind}-{ordinal}-{digest}"
    twin, count = made, 1
    while twin in taken:
        count += 1
        twin = f"{made}-{count}"
    return twin


def _paths(above: Mapping[str, Box]) -> tuple[dict[str, int], dict[str, dict[str, int]]]:
    """Of each box: length of its longest input path, and boxes of each kind along that path."""
    depth: dict[str, int] = {}
    counts: dict[str, dict[str, int]] = {}
    for id, box in above.items():
        longest = max(box.inputs, key=lambda arc: depth[arc.box], default=None)
        depth[id] = 1 + (depth[longest.box] if longest else 0)
        counts[id] = dict(counts[longest.box]) if longest else {}
        kind = kind_of(box)
        counts[id][kind] = counts[id].get(kind, 0) + 1
    return depth, counts


def _parameters(box: Box) -> bytes:
    """The box without its id and inputs, as JSON with sorted names; what is unset is left out.

    So an optional parameter of a later version doesn't change the ids of today's queries.
    """
    plain = msgspec.to_builtins(box)
    for name in ("id", "inputs"):
        plain.pop(name, None)
    return msgspec.json.encode(_bare(plain), order="sorted")


def _bare(value: object) -> object:
    if isinstance(value, dict):
        return {name: _bare(part) for name, part in value.items() if part is not None}
    if isinstance(value, list | tuple):
        return [_bare(part) for part in value]
    return value


def _sources(box: Box, above: Mapping[str, Box]) -> str:
    """Names of the sources above, sorted; one read through its late port as ``cars.late``."""
    names: set[str] = set()
    seen: set[Input] = set()
    stack = list(box.inputs)
    while stack:
        arc = stack.pop()
        if arc in seen:
            continue
        seen.add(arc)
        origin = above[arc.box]
        if isinstance(origin, Source):
            names.add(f"{origin.id}.{arc.port}" if arc.port else origin.id)
        elif arc.port:  # which way of a box with several outputs: ``.otherwise``
            names.add(f".{arc.port}")
        stack.extend(origin.inputs)
    return ",".join(sorted(names))
