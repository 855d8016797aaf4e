"""The state of a fragment as files: one Arrow IPC file per table of a box, and ``fragment.json``.

    fragment.json         version, checksum of the graph, and of each box its numbers and its files
    per_src.groups.arrow  the open groups of window per_src
    alerts.held.arrow     rows of sink alerts that nobody took yet

``docs/checkpoints.md`` describes every table.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec
import pyarrow as pa

from medusa._native import crc32c
from medusa.engine.boxes.base import BoxState, Operator
from medusa.errors import StateError
from medusa.ports import Buffer
from medusa.query.boxes import Graph

__all__ = ["INDEX", "VERSION", "graph_checksum", "load", "save"]

INDEX = "fragment.json"
VERSION = 1


def graph_checksum(graph: Graph) -> str:
    """Eight hex digits that change with any part of a graph."""
    return f"{crc32c(msgspec.json.encode(graph)):08x}"


def save(graph: Graph, boxes: Mapping[str, Operator]) -> dict[str, Buffer]:
    """The files of all boxes."""
    files: dict[str, Buffer] = {}
    index: dict[str, Any] = {}
    for id, box in boxes.items():
        state = box.save()
        names = {}
        for part, table in state.tables.items():
            name = f"{id}.{part}.arrow"
            files[name] = memoryview(_to_ipc(table))
            names[part] = name
        index[id] = {"kind": box.kind, "meta": state.meta, "tables": names}
    document = {"version": VERSION, "graph": graph_checksum(graph), "boxes": index}
    files[INDEX] = json.dumps(document, indent=1).encode()
    return files


def load(graph: Graph, boxes: Mapping[str, Operator], files: Mapping[str, Buffer]) -> None:
    """Give fresh boxes their state back.

    Raises:
        StateError: names the file that is missing or wrong.
    """
    index = _read_index(graph, files)
    if list(index) != list(boxes):
        raise StateError(f"{INDEX}: has other boxes than the query", code="state.graph")
    for id, box in boxes.items():
        entry = index[id]
        name = INDEX
        try:
            state = BoxState(meta=dict(entry["meta"]))
            for part, name in entry["tables"].items():
                state.tables[part] = _from_ipc(files[name])
            name = ", ".join(entry["tables"].values()) or INDEX
            box.load(state)
        except StateError:
            raise
        except KeyError as error:
            raise StateError(f"{name}: box {id!r}: {error} is missing", code="state.corrupt") from None
        except (
            ValueError,
            TypeError,
            AttributeError,
            IndexError,
            OverflowError,
            OSError,
            pa.ArrowException,
        ) as error:
            raise StateError(
                f"{name}: box {id!r}: not the state of this box: {error}", code="state.corrupt"
            ) from None


def _read_index(graph: Graph, files: Mapping[str, Buffer]) -> dict[str, Any]:
    if INDEX not in files:
        raise StateError(f"{INDEX} is missing", code="state.missing")
    try:
        document = json.loads(bytes(files[INDEX]))
        version, checksum, index = document["version"], document["graph"], document["boxes"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise StateError(f"{INDEX}: not the index of a fragment", code="state.corrupt") from None
    if version != VERSION:
        raise StateError(
            f"{INDEX}: has version {version!r}, this program reads {VERSION}", code="state.version"
        )
    if checksum != graph_checksum(graph):
        raise StateError(
            f"{INDEX}: the state belongs to another query than the one given", code="state.graph"
        )
    if not isinstance(index, dict):
        raise StateError(f"{INDEX}: not the index of a fragment", code="state.corrupt")
    return index


def _to_ipc(table: pa.Table) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def _from_ipc(data: Buffer) -> pa.Table:
    with pa.ipc.open_file(pa.py_buffer(data)) as reader:
        table = reader.read_all()
    table.validate(full=True)
    return table
