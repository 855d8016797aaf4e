"""The statuses of nodes as Arrow tables: docs/brain.md describes each column.

A column has the name of a field of the status, and its type. What is told of a field as a metric
(``wire/status_and_metrics.py``) and is named nowhere here comes behind those that are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from types import NoneType
from typing import Any, get_args, get_type_hints

import msgspec
import pyarrow as pa
from msgspec.structs import asdict

from medusa.engine.core.rows import TIME
from medusa.engine.stats import STATS_SCHEMA
from medusa.runtime.client.status.guarded_fragments import GuardedFragment, guarded_fragments
from medusa.wire.status_and_metrics import (
    BoxStatus,
    FragmentStatus,
    InputStatus,
    LinkStatus,
    LoadStatus,
    NamedStatus,
    NodeStatus,
    OutputStatus,
    ReceiverStatus,
    ReplicasStatus,
    SecondaryStatus,
    SmoothedLoad,
    metrics_of,
)

__all__ = ["SCHEMAS", "tables_of"]

Row = dict[str, Any]

_ARROW: dict[Any, pa.DataType] = {
    str: pa.string(),
    int: pa.int64(),
    float: pa.float64(),
    bool: pa.bool_(),
    tuple[str, ...]: pa.list_(pa.string()),
}
_OWN = {
    "boundary": TIME,
    "configuration": pa.int64(),
    "fragment": pa.string(),
    "fragments": pa.int64(),
    "node": pa.string(),
    "peer": pa.string(),
    "peer_load": pa.float64(),
    "query": pa.string(),
    "reader": pa.string(),
    "refused": pa.int64(),
    "state": pa.string(),
}
"""Columns that aren't a field, or count what a field lists."""


def _type(annotation: Any) -> pa.DataType | None:
    kinds = [each for each in get_args(annotation) if each is not NoneType]
    kind = kinds[0] if NoneType in get_args(annotation) else annotation
    return _ARROW.get(kind)


def _schema(columns: str, *structs: type[msgspec.Struct]) -> pa.Schema:
    """Columns by name; of the structs the first that has a field of that name says its type."""
    types: dict[str, pa.DataType | None] = {}
    for struct in reversed(structs):
        types |= {name: _type(hint) for name, hint in get_type_hints(struct).items()}
    types |= _OWN
    served = (name for struct in structs for name in metrics_of(struct))
    return pa.schema([(name, types[name]) for name in dict.fromkeys([*columns.split(), *served])])


def _joined(*schemas: pa.Schema) -> pa.Schema:
    """The columns of all; of several of one name the first."""
    found: dict[str, pa.Field] = {}
    for schema in schemas:
        for field in schema:
            found.setdefault(field.name, field)
    return pa.schema(found.values())


_LOAD = "rows_in_per_s rows_out_per_s busy_share selectivity cost_us"
_SMOOTHED = tuple(_LOAD.split())

SCHEMAS = {
    "nodes": _schema(
        "node participant load busy_share engine_share cpu_share cores memory_bytes overloaded overloaded_us"
        " fragments rows_in_per_s rows_out_per_s queue_bytes kept_bytes late dead lost_rows shed_rows refused"
        " lag_us boundary disk_error",
        LoadStatus,
        NodeStatus,
    ),
    "fragments": _schema(
        "node query fragment state rows_in rows_out rows_in_per_s rows_out_per_s busy_share selectivity"
        " cost_us queue_bytes kept_bytes late dead state_bytes lost_rows refused_rows shed_rows lag_us"
        " boundary finished checkpoints checkpoint_failures checkpoint_every_us failed disk_error",
        FragmentStatus,
        SmoothedLoad,
    ),
    "inputs": _schema("node query fragment source lost_rows lost_unknown", FragmentStatus, InputStatus),
    "boxes": _joined(
        _schema("node query fragment"),
        STATS_SCHEMA,
        pa.schema([(f"smoothed_{name}", pa.float64()) for name in _SMOOTHED]),
        _schema("waits_for held_by unmoved_us", BoxStatus),
    ),
    "streams": _schema(
        "node query fragment stream reader name state rows oldest_row sent_row received_row durable_row"
        " lost_rows kept_bytes spilled_bytes shed_rows boundary",
        OutputStatus,
        ReceiverStatus,
        NamedStatus,
    ),
    "replicas": _schema(
        "node query fragment owner epoch configuration state since_us behind_bytes alone_us"
        " taken_over_us taken_over_from",
        SecondaryStatus,
        ReplicasStatus,
    ),
    "links": _schema(
        "node peer state bytes_out_per_s bytes_in_per_s bandwidth share waiting_bytes lag_rows queue_bytes"
        " lag_us peer_load",
        LinkStatus,
    ),
}
"""Table -> its columns."""


def tables_of(statuses: Sequence[NodeStatus]) -> dict[str, pa.Table]:
    """Rows in the order of the statuses, and in each as it has them."""
    rows: dict[str, list[Row]] = {name: [] for name in SCHEMAS}
    rows["replicas"] = [row for each in guarded_fragments(statuses) for row in _replicas(each)]
    for status in statuses:
        rows["nodes"].append(_node(status))
        rows["links"] += _links(status)
        for fragment in status.fragments:
            where = {"node": status.node, "query": fragment.query, "fragment": fragment.fragment}
            rows["fragments"].append({**where, **_fragment(fragment)})
            rows["inputs"] += (where | row for row in _inputs(fragment))
            rows["boxes"] += (where | row for row in _boxes(fragment))
            rows["streams"] += (where | row for row in _streams(fragment.outputs))
    return {name: _table(rows[name], schema) for name, schema in SCHEMAS.items()}


def _table(rows: Iterable[Row], schema: pa.Schema) -> pa.Table:
    return pa.Table.from_pylist([{name: row.get(name) for name in schema.names} for row in rows], schema)


def _node(status: NodeStatus) -> Row:
    return {
        **asdict(status),
        **asdict(status.load),
        "fragments": len(status.fragments),
        "refused": sum(status.refused.values()),
        "boundary": status.boundary_us,
    }


def _fragment(fragment: FragmentStatus) -> Row:
    load = {} if fragment.load is None else asdict(fragment.load)
    return {**asdict(fragment), **load, "boundary": fragment.boundary_us}


def _inputs(fragment: FragmentStatus) -> Iterator[Row]:
    """One row per source."""
    for source, rows in fragment.lost_by.items():
        yield {
            "source": source,
            "lost_rows": rows,
            "lost_unknown": fragment.lost_unknown,
            "left_out_rows": fragment.left_out_by.get(source, 0),
        }


def _boxes(fragment: FragmentStatus) -> Iterator[Row]:
    for id, box in fragment.boxes.items():
        smoothed = {} if box.smoothed is None else asdict(box.smoothed)
        yield {"box": id, **asdict(box), **{f"smoothed_{name}": value for name, value in smoothed.items()}}


def _streams(outputs: Iterable[OutputStatus]) -> Iterator[Row]:
    """One row per stream and reader; of a stream that nobody reads one without a reader."""
    for output in outputs:
        of_stream = {**asdict(output), "boundary": output.boundary_us}
        readers = [{**asdict(each), "reader": each.to} for each in output.receivers]
        readers += [_named(each) for each in output.named]
        for reader in readers or [{}]:
            yield {**of_stream, **reader, "kept_bytes": output.kept_bytes}


def _named(one: NamedStatus) -> Row:
    return {
        **asdict(one),
        "reader": one.to,
        "state": "flowing" if one.connected else "detached",
        "durable_row": one.acknowledged_row,
    }


def _replicas(guarded: GuardedFragment) -> Iterator[Row]:
    """One row per fragment and node that stands by; where nobody does one without a node."""
    replicas = guarded.replicas
    of_fragment = {**asdict(replicas), "query": guarded.query, "fragment": guarded.fragment}
    of_fragment["configuration"] = guarded.number
    for node, each in replicas.secondaries.items():
        yield {**of_fragment, "node": node, **asdict(each)}
    if not replicas.secondaries:
        yield of_fragment


def _links(status: NodeStatus) -> Iterator[Row]:
    """The nodes in its configuration first, then others with streams."""
    load = status.load
    for peer in dict.fromkeys([*status.peers, *load.links]):
        said, link = load.peers.get(peer), load.links.get(peer)
        yield {
            "node": status.node,
            "peer": peer,
            "state": status.link_state(peer),
            "peer_load": None if said is None else said.load,
            **({} if link is None else asdict(link)),
        }
