"""The statuses of nodes as Arrow tables: docs/nodes.md describes each column."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from medusa.engine.core.rows import TIME
from medusa.engine.stats import STATS_SCHEMA
from medusa.runtime.node.link_states import link_state

__all__ = ["SCHEMAS", "tables_of"]

Status = Mapping[str, Any]
Row = dict[str, Any]

_TEXT, _COUNT, _SHARE, _FLAG = pa.string(), pa.int64(), pa.float64(), pa.bool_()


def _schema(**columns: pa.DataType) -> pa.Schema:
    return pa.schema(list(columns.items()))


_NODES = _schema(
    node=_TEXT,
    participant=_TEXT,
    load=_SHARE,
    busy_share=_SHARE,
    engine_share=_SHARE,
    cpu_share=_SHARE,
    cores=_COUNT,
    memory_bytes=_COUNT,
    overloaded=pa.list_(pa.string()),
    overloaded_us=_COUNT,
    fragments=_COUNT,
    rows_in_per_s=_SHARE,
    rows_out_per_s=_SHARE,
    queue_bytes=_COUNT,
    kept_bytes=_COUNT,
    late=_COUNT,
    dead=_COUNT,
    lost_rows=_COUNT,
    shed_rows=_COUNT,
    refused=_COUNT,
    lag_us=_COUNT,
    boundary=TIME,
    disk_error=_TEXT,
)
_FRAGMENTS = _schema(
    node=_TEXT,
    query=_TEXT,
    fragment=_TEXT,
    state=_TEXT,
    rows_in=_COUNT,
    rows_out=_COUNT,
    rows_in_per_s=_SHARE,
    rows_out_per_s=_SHARE,
    busy_share=_SHARE,
    selectivity=_SHARE,
    cost_us=_SHARE,
    queue_bytes=_COUNT,
    kept_bytes=_COUNT,
    late=_COUNT,
    dead=_COUNT,
    state_bytes=_COUNT,
    lost_rows=_COUNT,
    refused_rows=_COUNT,
    shed_rows=_COUNT,
    lag_us=_COUNT,
    boundary=TIME,
    finished=_FLAG,
    checkpoints=_COUNT,
    checkpoint_failures=_COUNT,
    failed=_TEXT,
    disk_error=_TEXT,
)
_SMOOTHED = ("rows_in_per_s", "rows_out_per_s", "busy_share", "selectivity", "cost_us")
_BOXES = pa.schema(
    [
        ("node", _TEXT),
        ("query", _TEXT),
        ("fragment", _TEXT),
        *STATS_SCHEMA,
        *((f"smoothed_{name}", _SHARE) for name in _SMOOTHED),
        ("waits_for", _TEXT),
        ("held_by", _TEXT),
        ("unmoved_us", _COUNT),
    ]
)
_STREAMS = _schema(
    node=_TEXT,
    query=_TEXT,
    fragment=_TEXT,
    stream=_TEXT,
    reader=_TEXT,
    name=_TEXT,
    state=_TEXT,
    rows=_COUNT,
    oldest_row=_COUNT,
    sent_row=_COUNT,
    received_row=_COUNT,
    durable_row=_COUNT,
    lost_rows=_COUNT,
    kept_bytes=_COUNT,
    spilled_bytes=_COUNT,
    shed_rows=_COUNT,
    boundary=TIME,
)
_LINKS = _schema(
    node=_TEXT,
    peer=_TEXT,
    state=_TEXT,
    bytes_out_per_s=_SHARE,
    bytes_in_per_s=_SHARE,
    bandwidth=_COUNT,
    share=_SHARE,
    waiting_bytes=_COUNT,
    lag_rows=_COUNT,
    queue_bytes=_COUNT,
    lag_us=_COUNT,
    peer_load=_SHARE,
)

SCHEMAS = {"nodes": _NODES, "fragments": _FRAGMENTS, "boxes": _BOXES, "streams": _STREAMS, "links": _LINKS}
"""Table -> its columns."""


def tables_of(statuses: Sequence[Status]) -> dict[str, pa.Table]:
    """Rows in the order of the statuses, and in each as it has them.

    Args:
        statuses: whole ones: ``overview.check_entitled``.
    """
    rows: dict[str, list[Row]] = {name: [] for name in SCHEMAS}
    for status in statuses:
        rows["nodes"].append(_node(status))
        rows["links"] += _links(status)
        for fragment in status["fragments"]:
            where = {"node": status["node"], "query": fragment["query"], "fragment": fragment["fragment"]}
            rows["fragments"].append({**where, **_fragment(fragment)})
            rows["boxes"] += (where | row for row in _boxes(fragment))
            rows["streams"] += (where | row for row in _streams(fragment["outputs"]))
    return {name: _table(rows[name], schema) for name, schema in SCHEMAS.items()}


def _table(rows: Iterable[Row], schema: pa.Schema) -> pa.Table:
    return pa.Table.from_pylist([{name: row.get(name) for name in schema.names} for row in rows], schema)


def _node(status: Status) -> Row:
    return {
        **status,
        **status["load"],
        "fragments": len(status["fragments"]),
        "refused": sum(status["refused"].values()),
        "boundary": status["boundary_us"],
    }


def _fragment(fragment: Status) -> Row:
    load = fragment["load"] or {}
    return {**fragment, **load, "boundary": fragment["boundary_us"]}


def _boxes(fragment: Status) -> Iterator[Row]:
    for id, box in fragment["boxes"].items():
        smoothed = box["smoothed"] or {}
        yield {"box": id, **box, **{f"smoothed_{name}": smoothed.get(name) for name in _SMOOTHED}}


def _streams(outputs: Iterable[Status]) -> Iterator[Row]:
    """One row per stream and reader; of a stream that nobody reads one without a reader."""
    for output in outputs:
        of_stream = {**output, "boundary": output["boundary_us"]}
        readers = [{**each, "reader": each["to"]} for each in output["receivers"]]
        readers += [_named(each) for each in output["named"]]
        for reader in readers or [{}]:
            yield {**of_stream, **reader, "kept_bytes": output["kept_bytes"]}


def _named(one: Status) -> Row:
    return {
        **one,
        "reader": one["to"],
        "state": "flowing" if one["connected"] else "detached",
        "durable_row": one["acknowledged_row"],
    }


def _links(status: Status) -> Iterator[Row]:
    """The nodes in its configuration first, then others with streams."""
    load = status["load"]
    for peer in dict.fromkeys([*status["peers"], *load["links"]]):
        said = load["peers"].get(peer, {})
        yield {
            "node": status["node"],
            "peer": peer,
            "state": link_state(status, peer),
            "peer_load": said.get("load"),
            **load["links"].get(peer, {}),
        }
