"""Shapes of the boxes around a box that was split."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from medusa.errors import QueryError
from medusa.query.boxes.base import Field
from medusa.query.boxes.splits import KeyRouter, OrderedMerge
from medusa.query.shape import Shape, refuse_twice, types_of
from medusa.query.shapes.windows import key_type, need_time
from medusa.query.types import TIMESTAMP, check_column_name
from medusa.units import DURATION_MAX_US

__all__ = ["PARTS_MAX", "key_router_shape", "ordered_merge_shape"]

PARTS_MAX = 256
HASHES = 1 << 64
BLOCK_MAX = 1 << 31


def key_router_shape(box: KeyRouter, row: Shape, label: str, port: str) -> Shape:
    if not 2 <= box.parts <= PARTS_MAX:
        raise QueryError(f"{label}: from 2 to {PARTS_MAX} parts, got {box.parts}", code="query.split")
    for key in box.keys:
        key_type(key, row, label)
    if box.keys:
        _check_cuts(box, label)
    elif box.cuts or box.block is None or not 1 <= box.block <= BLOCK_MAX:
        raise QueryError(
            f"{label}: without keys rows go in blocks of 1 to {BLOCK_MAX:,} rows, got {box.block}"
            + (", and ranges" if box.cuts else ""),
            code="query.split",
        )
    schema = row.schema
    if box.number is not None:
        schema = (*schema, Field(check_column_name(box.number, what=label), "int64"))
        refuse_twice([field.name for field in schema], label=label)
    return replace(row, box=f"{label}, {port}" if port else label, schema=schema)


def _check_cuts(box: KeyRouter, label: str) -> None:
    if box.block is not None:
        raise QueryError(f"{label}: rows go by key or in blocks, not both", code="query.split")
    edges = (0, *box.cuts, HASHES)
    if len(box.cuts) != box.parts - 1 or any(low >= high for low, high in pairwise(edges)):
        raise QueryError(
            f"{label}: {box.parts} parts need {box.parts - 1} cuts that ascend between 0 and 2^64,"
            f" got {', '.join(map(str, box.cuts[:8])) or 'none'}",
            code="query.split",
        )


def ordered_merge_shape(box: OrderedMerge, inputs: Sequence[Shape], label: str) -> Shape:
    first = inputs[0]
    for other in inputs:
        need_time(other, label, "a merge in order")
        if other.schema != first.schema:
            raise QueryError(
                f"{label}: {first.box} and {other.box} send different columns", code="query.split"
            )
    types = types_of(first.schema)
    expected = {**dict.fromkeys(box.by, (TIMESTAMP, "int64")), **dict.fromkeys(box.positions, ("int64",))}
    for name, kinds in expected.items():
        if types.get(name) not in kinds:
            raise QueryError(
                f"{label}: expected a column {name!r} of type {' or '.join(kinds)}, got {types.get(name)}",
                code="query.split",
            )
    if not 1 <= len(box.positions) <= 2 or len(expected) < len(box.by) + len(box.positions):
        raise QueryError(f"{label}: needs one or two positions, other columns than by", code="query.split")
    if box.arrival and (box.by or box.within_us or len(box.positions) > 1):
        raise QueryError(
            f"{label}: in order of arrival there is one position and no more", code="query.split"
        )
    if not 0 <= box.within_us <= DURATION_MAX_US:
        raise QueryError(f"{label}: within is out of range", code="query.duration")
    schema = tuple(field for field in first.schema if field.name not in box.positions)
    if not schema:
        raise QueryError(f"{label}: no columns are left", code="query.split")
    return replace(first, box=label, schema=schema)
