"""Statuses as nodes give them, made by hand."""

from __future__ import annotations

from typing import Any

from medusa.apps.dashboard.network import Seen
from medusa.wire.status_and_metrics import status_of


def box(kind: str = "filter", **figures: Any) -> dict[str, Any]:
    return {"kind": kind, "rows_in": 10, "rows_out": 5, "load": 0.25, "rows_in_per_s": 100.0, **figures}


def fragment(
    name: str,
    *,
    ins: dict[str, str] | None = None,
    outs: dict[str, str] | None = None,
    state: str = "flowing",
    **fields: Any,
) -> dict[str, Any]:
    """A fragment of three boxes.

    Args:
        ins: stream -> who sends it.
        outs: stream -> the node that reads it.
        state: of every stream.
    """
    sources = [f"source-{place}" for place in range(len(ins or {}))] or ["source-0"]
    sinks = [f"sink-{place}" for place in range(len(outs or {}))] or ["sink-0"]
    boxes = (
        {each: box("source") for each in sources} | {"work": box()} | {each: box("sink") for each in sinks}
    )
    arcs = [[each, "", "work"] for each in sources] + [["work", "", each] for each in sinks]
    inputs = [
        {"source": source, "stream": stream, "from": origin, "state": state, "rows": 90, "next_row": 90}
        for source, (stream, origin) in zip(sources, (ins or {}).items(), strict=False)
    ]
    outputs = [
        {
            "sink": sink,
            "stream": stream,
            "rows": 100,
            "receivers": [{"to": target, "state": state, "received_row": 80}],
        }
        for sink, (stream, target) in zip(sinks, (outs or {}).items(), strict=False)
    ]
    known = {"fragment": name, "query": name.partition("/")[0], "state": "running", "boxes": boxes}
    return {**known, "arcs": arcs, "inputs": inputs, "outputs": outputs, **fields}


def node(name: str, *fragments: dict[str, Any], peers: str = "", **fields: Any) -> dict[str, Any]:
    """A node whose peers are all up, unless ``peers`` says ``name=silent``."""
    known = dict(each.partition("=")[::2] for each in peers.split())
    up = {peer: state or "up" for peer, state in known.items()}
    return {"node": name, "participant": "alice", "rows_in": 1, "peers": up, "fragments": fragments, **fields}


def seen(*statuses: dict[str, Any], why: str = "", age_s: float = 0.0) -> list[Seen]:
    return [
        Seen(address=f"tcp://127.0.0.1:{5000 + place}", status=status_of(each), why=why, age_s=age_s)
        for place, each in enumerate(statuses)
    ]


def edges_and_core(edges: int = 2) -> list[dict[str, Any]]:
    """Edges of alice that send to a core of bob's, whose output programs read."""
    names = [f"edge-{place + 1}" for place in range(edges)]
    made = [
        node(
            name,
            fragment("q/cars", ins={"q.cars": "client-1"}, outs={f"q.cars-{name}": "core"}),
            peers="core",
        )
        for name in names
    ]
    core = fragment("q/all", ins={f"q.cars-{name}": name for name in names}, outs={"q.out": "client-2"})
    return [*made, node("core", core, peers=" ".join(names), participant="bob")]


def owned(
    name: str,
    secondaries: dict[str, str],
    *,
    configuration: int = 3,
    alone_us: int | None = None,
    **fields: Any,
) -> dict[str, Any]:
    """A guarded fragment by the word of the node that has it.

    Args:
        secondaries: node -> its state.
    """
    said = {
        node: {"state": state, "since_us": 12_000_000, "behind_bytes": None if state == "missing" else 2048}
        for node, state in secondaries.items()
    }
    replicas: dict[str, Any] = {"owner": "", "epoch": 2, "secondaries": said, "alone_us": alone_us}
    return fragment(name, configuration=configuration, replicas=replicas, **fields)


def guarding(states: dict[str, str], alone_us: int | None = None) -> list[dict[str, Any]]:
    """An edge whose fragment others stand by for, and those."""
    guarded = owned("q/cars", states, alone_us=alone_us, ins={"q.cars": "client-1"})
    guarded["replicas"]["owner"] = "edge"
    spares = [node(name, peers="edge") for name in states]
    return [node("edge", guarded, peers=" ".join(states)), *spares]
