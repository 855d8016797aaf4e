"""The state of a fragment as files: one Arrow IPC file per table of a box, and ``fragment.json``.

    fragment.json         version, and of each box its format, a checksum of what it is, numbers, files
    per_src.groups.arrow  the open groups of window per_src
    alerts.held.arrow     rows of sink alerts that nobody took yet

State belongs to a box: to its id, its kind and parameters and the columns that come in, and to the
format of the state of its kind. ``docs/checkpoints.md`` describes every table.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa

from medusa._native import crc32c
from medusa.engine.core.box import BoxState, Operator
from medusa.engine.state.background_copy import BackgroundCopy, Document, Later
from medusa.engine.state.capture import Capture
from medusa.engine.state.delta import Part, read_table, write_table
from medusa.errors import StateError
from medusa.ports import Buffer
from medusa.query.boxes import Graph
from medusa.query.graph import CheckedGraph
from medusa.query.signature import signatures

__all__ = ["INDEX", "VERSION", "BoxEntry", "box_sums", "graph_checksum", "load", "read_index", "save"]

INDEX = "fragment.json"
VERSION = 2
"""A reader takes this one and 1, which had one checksum over the whole query and no formats."""


@dataclass(frozen=True, slots=True)
class BoxEntry:
    """What ``fragment.json`` says of a box.

    Attributes:
        format: of the state of its kind.
        sum: of what the box was; empty in version 1.
        tables: table -> file.
    """

    kind: str
    format: int
    sum: str
    meta: dict[str, Any]
    tables: dict[str, str]


@dataclass(frozen=True, slots=True)
class Index:
    """``fragment.json``.

    Attributes:
        query: its name; empty in version 1.
        graph: checksum of the query; only in version 1.
        shedding: what ``RuledDrops.save`` gave; None: there was nothing.
    """

    query: str
    graph: str
    boxes: dict[str, BoxEntry]
    shedding: Any = None


def graph_checksum(graph: Graph | Any) -> str:
    """Of version 1: eight hex digits that change with any part of a graph (or of its JSON values)."""
    return f"{crc32c(msgspec.json.encode(graph)):08x}"


def box_sums(checked: CheckedGraph) -> dict[str, str]:
    """Of each box eight hex digits that change with what its state depends on."""
    return {
        id: f"{crc32c(msgspec.json.encode(each, order='sorted') + _order(each)):08x}"
        for id, each in signatures(checked).items()
    }


def _order(signature: Mapping[str, Any]) -> bytes:
    """The order of the columns, which sorted names hide."""
    return msgspec.json.encode([list(input["columns"]) for input in signature["inputs"]])


def save(
    query: str,
    boxes: Mapping[str, Operator],
    sums: Mapping[str, str],
    *,
    patient: bool = False,
    capture: Capture | None = None,
    shedding: Mapping[str, Any] | None = None,
) -> BackgroundCopy:
    """The files of all boxes, as they are now.

    Args:
        query: its name.
        sums: as ``box_sums`` gives them.
        patient: who asks copies large tables by and by, while the boxes go on.
        capture: only what changed since its base, of boxes that know; None: all.
        shedding: of what is left out under overload, as JSON values; None: nothing ever is.
    """
    files: dict[str, Part | Later | Document] = {}
    index: dict[str, Any] = {}
    for id, box in boxes.items():
        state = box.save(patient=patient, capture=capture)
        names = {}
        for part, table in state.tables.items():
            name = f"{id}.{part}.arrow"
            files[name] = table if part in state.copied else write_table(table)
            names[part] = name
        for part, table in state.later.items():
            names[part] = f"{id}.{part}.arrow"
            files[names[part]] = table
        for part, stream in state.streams.items():
            names[part] = f"{id}.{part}.arrow"
            files[names[part]] = stream.write()
        index[id] = {
            "kind": box.kind,
            "format": box.state_format,
            "sum": sums[id],
            "meta": state.meta,
            "tables": dict(sorted(names.items())),  # not by which were copied at once
        }
    document = {"version": VERSION, "query": query, "boxes": index}
    if shedding is not None:
        document["shedding"] = shedding
    files[INDEX] = Document(document)
    return BackgroundCopy(files, capture)


def load(
    checked: CheckedGraph,
    boxes: Mapping[str, Operator],
    files: Mapping[str, Buffer],
    *,
    kept: Collection[str] | None = None,
) -> None:
    """Give fresh boxes their state back.

    Args:
        kept: the boxes that take their state, as ``medusa.engine.state.evolve`` found; None: all, and the
        state
            must be that of this very query.

    Raises:
        StateError: names the file that is missing or wrong.
    """
    index = read_index(files)
    if kept is None:
        _check_same(checked, boxes, index)
    for id, box in boxes.items():
        if kept is None or id in kept:
            _load_box(box, index.boxes[id], files)


def _check_same(checked: CheckedGraph, boxes: Mapping[str, Operator], index: Index) -> None:
    if index.graph:
        same = index.graph == graph_checksum(checked.graph)
    else:
        sums = {id: entry.sum for id, entry in index.boxes.items()}
        same = index.query == checked.graph.name and sums == box_sums(checked)
    if not same:
        raise StateError(
            f"{INDEX}: the state belongs to another query than the one given", code="state.graph"
        )
    if list(index.boxes) != list(boxes):
        raise StateError(f"{INDEX}: has other boxes than the query", code="state.graph")


def _load_box(box: Operator, entry: BoxEntry, files: Mapping[str, Buffer]) -> None:
    name = INDEX
    if entry.kind != box.kind:
        raise StateError(f"{INDEX}: box {box.id!r} is no {box.kind} there", code="state.corrupt")
    if entry.format > box.state_format:
        raise StateError(
            f"{INDEX}: box {box.id!r}: its state has format {entry.format}, this program reads up to"
            f" {box.state_format}",
            hint="a newer Medusa wrote it",
            code="state.version",
        )
    try:
        state = BoxState(meta=dict(entry.meta))
        for part, name in entry.tables.items():
            if name not in files:
                raise StateError(
                    f"{name} is missing: {INDEX} names it for box {box.id!r}", code="state.missing"
                )
            state.tables[part] = _checked(files[name])
        name = ", ".join(entry.tables.values()) or INDEX
        if entry.format < box.state_format:
            box.upgrade(state, entry.format)
        box.load(state)
    except StateError:
        raise
    except KeyError as error:
        raise StateError(f"{name}: box {box.id!r}: {error} is missing", code="state.corrupt") from None
    except (
        ValueError,
        TypeError,
        AttributeError,
        IndexError,
        OverflowError,
        OSError,
        MemoryError,
        pa.ArrowException,
    ) as error:
        raise StateError(
            f"{name}: box {box.id!r}: not the state of this box: {error}", code="state.corrupt"
        ) from None


def read_index(files: Mapping[str, Buffer]) -> Index:
    """What ``fragment.json`` says.

    Raises:
        StateError: it is missing, damaged, or of a later version.
    """
    if INDEX not in files:
        raise StateError(f"{INDEX} is missing", code="state.missing")
    try:
        document = json.loads(bytes(files[INDEX]))
        version = document["version"]
        if type(version) is not int or version < 1:
            raise ValueError
    except (ValueError, KeyError, TypeError, RecursionError):
        raise StateError(f"{INDEX}: not the index of a fragment", code="state.corrupt") from None
    if version > VERSION:
        raise StateError(
            f"{INDEX}: has version {version}, this program reads up to {VERSION}",
            hint="a newer Medusa wrote it",
            code="state.version",
        )
    try:
        head, empty = ("graph", "query") if version == 1 else ("query", "graph")
        boxes = {id: _entry(each, version) for id, each in document["boxes"].items()}
        names = {head: _text(document[head]), empty: ""}
        return Index(**names, boxes=boxes, shedding=document.get("shedding"))
    except (ValueError, KeyError, TypeError, AttributeError):
        raise StateError(f"{INDEX}: not the index of a fragment", code="state.corrupt") from None


def _entry(found: Mapping[str, Any], version: int) -> BoxEntry:
    meta, tables = found["meta"], found["tables"]
    if not isinstance(meta, dict) or not isinstance(tables, dict):
        raise TypeError
    format = 1 if version == 1 else found["format"]
    if type(format) is not int or format < 1:
        raise ValueError
    return BoxEntry(
        kind=_text(found["kind"]),
        format=format,
        sum="" if version == 1 else _text(found["sum"]),
        meta=meta,
        tables={part: _text(name) for part, name in tables.items()},
    )


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise TypeError
    return value


def _checked(data: Buffer) -> pa.Table:
    table = read_table(data)
    table.validate(full=True)
    return table
