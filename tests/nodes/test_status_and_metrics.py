"""The fields of ``medusa status --json``: those of a file, which scripts may count on.

``MEDUSA_REWRITE=1 pytest tests/nodes/test_status_and_metrics.py`` writes it anew. Commit only a
difference that was meant: a field that is gone, or has another name or type, breaks who reads it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec import NODEFAULT, inspect

import medusa as md
from medusa.wire.messages.links import OLDEST
from medusa.wire.status_and_metrics import NodeStatus
from tests.nodes.taken_over import ROWS, SCHEMA, Run

GOLDEN = Path(__file__).with_name("status_and_metrics.txt")

AT = {"e": ["left", "l", "right", "r"], "m": ["meet", "out"]}

NAMES = ("e", "m", "s1", "s2", "w")


def joined() -> md.Query:
    q = md.Query("q")
    sides = [
        q.source(name, SCHEMA, time="ts", slack="0s").filter("v >= 0", name=name[0])
        for name in ("left", "right")
    ]
    meet = sides[0].join(sides[1], on="k", within="1s", name="meet")
    q.sink("out", meet, recovery="precise", method="active_standby", delay="2s")
    return q


def declared(kind: inspect.Type, at: str = "") -> Iterator[tuple[str, str]]:
    """Each place of a status by its structs, and what may stand there; ``?``: it may be left out."""
    parts = list(kind.types) if isinstance(kind, inspect.UnionType) else [kind]
    kinds = {KINDS[type(part)] for part in parts}
    yield at or "/", " ".join(sorted(kinds | ({"open"} if any(is_open(part) for part in parts) else set())))
    for part in parts:
        match part:
            case inspect.StructType(cls=cls, fields=known):
                for each in known:
                    bare = each.default is NODEFAULT and each.default_factory is NODEFAULT
                    left_out = not each.required and (bare or cls.__struct_config__.omit_defaults)
                    (name, what), *below = declared(each.type, f"{at}/{each.encode_name}")
                    yield from [(name, what + " ?" * left_out), *below]
            case inspect.DictType(value_type=inner) if not is_open(part):
                yield from declared(inner, f"{at}/*")
            case inspect.VarTupleType(item_type=inner):
                yield from declared(inner, f"{at}[]")
            case inspect.TupleType(item_types=several):
                for place, inner in enumerate(several):
                    yield from declared(inner, f"{at}[{place}]")


def is_open(kind: inspect.Type) -> bool:
    """Objects whose fields no struct names: the file has those that the federation shows."""
    return isinstance(kind, inspect.DictType) and isinstance(kind.value_type, inspect.AnyType)


KINDS: dict[type, str] = {
    inspect.AnyType: "anything",
    inspect.BoolType: "truth",
    inspect.DictType: "object",
    inspect.FloatType: "number",
    inspect.IntType: "number",
    inspect.NoneType: "null",
    inspect.StrType: "text",
    inspect.StructType: "object",
    inspect.TupleType: "list",
    inspect.VarTupleType: "list",
}
VALUES = {
    str: "text",
    bool: "truth",
    int: "number",
    float: "number",
    type(None): "null",
    list: "list",
    dict: "object",
}


def shown(value: Any, known: Mapping[str, str], at: str = "") -> Iterator[tuple[str, str]]:
    """Each place in a document as the file names it, and what stands there."""
    yield at or "/", VALUES[type(value)]
    if isinstance(value, dict):
        for name, part in value.items():
            yield from shown(part, known, f"{at}/{'*' if f'{at}/*' in known else name}")
    elif isinstance(value, list):
        for place, part in enumerate(value):
            yield from shown(part, known, f"{at}[{place}]" if f"{at}[0]" in known else f"{at}[]")


def table(statuses: Sequence[Any]) -> str:
    """A line per field: where it stands, and what may stand there. Of what the structs leave open, as they
    show it."""
    known = dict(declared(inspect.type_info(NodeStatus)))
    opened = [at for at, what in known.items() if "open" in what]
    more: dict[str, set[str]] = {}
    for place, kind in (each for status in statuses for each in shown(status, known)):
        if place not in known and any(place.startswith((f"{at}/", f"{at}[")) for at in opened):
            more.setdefault(place, set()).add(kind)
    lines = known | {place: " ".join(sorted(kinds)) for place, kinds in more.items()}
    return "".join(f"{place} {what}\n" for place, what in sorted(lines.items()))


def lacking(value: Any, known: Mapping[str, str], at: str = "") -> Iterator[str]:
    """Fields that an object of a document lacks, and may not."""
    if isinstance(value, dict) and f"{at}/*" not in known:
        parents = (each.rpartition("/") for each, what in known.items() if not what.endswith("?"))
        names = (name for parent, _, name in parents if parent == at and name and "[" not in name)
        yield from (f"{at}/{name}" for name in names if name not in value)
    for name, part in value.items() if isinstance(value, dict) else ():
        yield from lacking(part, known, f"{at}/{'*' if f'{at}/*' in known else name}")
    for place, part in enumerate(value) if isinstance(value, list) else ():
        yield from lacking(part, known, f"{at}[{place}]" if f"{at}[0]" in known else f"{at}[]")


@pytest.fixture(scope="module")
def run() -> Run:
    """A guarded join, half way through its input, with a named subscription."""
    run = Run(joined(), AT, standby={"e": ["s2"], "m": ["s1"]}, names=NAMES, deploys="e")
    run.deploy()
    named = run.fed.client("named", "m")
    named.do(lambda mind: mind.subscribe(run.fed.world.now_us, "q.out", OLDEST, name="mine"))
    run.publish(0, ROWS // 2)
    run.until_guarded(FRAGMENT)
    run.fed.run(for_us=2_000_000)
    return run


FRAGMENT = "q/meet"


def status(run: Run, name: str) -> Any:
    """As the node sends it: JSON, written and read."""
    node = run.fed.nodes[name]
    return json.loads(json.dumps(node.brain.status(node.clock.monotonic_us())))


@pytest.fixture(scope="module")
def statuses(run: Run) -> list[Any]:
    """Of all nodes, while they live and after one that stands by was lost."""
    before = [status(run, name) for name in NAMES]
    run.lose("s1")
    run.fed.run(for_us=2_000_000)
    return [*before, *(status(run, name) for name in NAMES if name not in run.lost)]


def test_the_fields_are_those_of_the_file(statuses: list[Any]) -> None:
    told = table(statuses)
    if os.environ.get("MEDUSA_REWRITE"):
        GOLDEN.write_text(told)
    want = GOLDEN.read_text()
    gone = sorted(set(want.splitlines()) - set(told.splitlines()))
    new = sorted(set(told.splitlines()) - set(want.splitlines()))
    assert told == want, (
        f"the status has other fields than {GOLDEN.name}; gone: {gone}; new: {new}. If that is meant, write "
        f"it anew (MEDUSA_REWRITE=1 pytest tests/nodes/{Path(__file__).name}), say it in docs/nodes.md, and "
        "in CHANGELOG.md where a field is gone"
    )


def test_what_nodes_say_is_what_the_file_says(statuses: list[Any]) -> None:
    known = dict(line.split(" ", 1) for line in GOLDEN.read_text().splitlines())
    for each in statuses:
        for place, kind in shown(each, known):
            may = known[place].split()
            assert kind in may or "anything" in may, f"{place} is a {kind}"
        assert list(lacking(each, known)) == []


def test_the_federation_shows_what_the_file_is_about(statuses: list[Any]) -> None:
    """A join, a named subscription, a guarded fragment and who stands by for it, an output with delay: else
    the other tests check less than they say."""
    known = dict(declared(inspect.type_info(NodeStatus)))
    seen = {place for each in statuses for place, _ in shown(each, known)}
    rare = {place for place, what in known.items() if what.endswith("?")}
    assert {
        place
        for place in rare
        if not place.startswith(
            ("/load/causes", "/in_doubt", "/runs_on", "/market", "/shedding", "/queries/*/scaling")
        )
    } <= seen
    named = "/fragments[]/outputs[]/named[]"
    assert {place for place in known if place.startswith(named)} <= seen
    states = {
        secondary["state"]
        for each in statuses
        for fragment in each["fragments"]
        for secondary in fragment["replicas"]["secondaries"].values()
    }
    assert states == {"following", "missing"}
    (alone,) = (each["fragments"][0]["replicas"] for each in statuses[len(NAMES) :] if each["node"] == "m")
    assert alone["alone_us"] > 0
    assert 0 < alone["secondaries"]["s1"]["since_us"] <= 2_000_000
    assert {
        box["kind"] for each in statuses for part in each["fragments"] for box in part["boxes"].values()
    } >= {"join"}
