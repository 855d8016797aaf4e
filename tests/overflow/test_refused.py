"""Each reason for which a fragment doesn't go to Spark, once; and behind it the run is as it was."""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pyarrow as pa
import pytest

import medusa as md
from medusa.engine.fragment import Fragment
from medusa.errors import LinkError
from medusa.nodes import fragments
from medusa.nodes.placement.placement import cut
from medusa.runtime.embedded_node.node_thread import Node
from medusa.runtime.machine.clock import SystemClock
from medusa.spark.overflow.executor import LostError
from medusa.spark.overflow.on_spark import OnSpark
from medusa.spark.overflow.participant import Participant, TriggerLatency, reason
from tests.overflow.in_process import InProcess

SCHEMA = {"ts": "int64", "k": "int64", "v": "float64", "note": "utf8"}
DEADLINE_S = 60


@md.register("tests.overflow.refused.same", version=1)
def unchanged(batch: Any) -> Any:
    return batch


def windowed(q: md.Query, rows: Any, **sink: Any) -> None:
    q.sink(
        "out", rows.window("10s").group_by("k").aggregate(n=md.count(), v=md.sum("v"), name="per_k"), **sink
    )


def of_program(q: md.Query, rows: Any) -> None:
    q.sink("out", rows.apply(unchanged, SCHEMA, name="f"))


def failed_pairs(q: md.Query, rows: Any) -> None:
    both = rows.join(rows.select("k", w="v"), on={"10 // k": "10 // k"}, within="2s", name="both")
    q.sink("out", both.dead)


def all_notes(q: md.Query, rows: Any) -> None:
    q.sink("out", rows.group_by("v").running(before=md.lag("note"), name="notes"))


@dataclass(frozen=True)
class Case:
    """A query of which the fragment is refused.

    Attributes:
        says: in the refusal.
        to: the node that is asked.
        more: of the source.
        parts: the window is split.
        note: what each row carries.
        in_order: else the order of the rows is a decision of the node.
    """

    build: Callable[[md.Query, Any], None]
    says: str
    code: str = "E_DECLINED"
    to: str = "spark1"
    more: dict[str, Any] = field(default_factory=dict)
    parts: bool = False
    note: str = "a"
    in_order: bool = True

    def query(self, name: str, **more: Any) -> md.Query:
        q = md.Query(name)
        self.build(q, q.source("rows", SCHEMA, time="ts", unit="s", slack="1s", **more))
        return q.split("per_k", 2) if self.parts else q


def merged(q: md.Query, rows: Any) -> None:
    q.sink("out", rows.union(rows.filter("v > 0"), name="both"))


SOON = md.QoS(latency=[(0, 1), ("1s", 1), ("2s", 0)])

CASES = {
    "a box that Spark runs in another order": Case(
        merged, "union 'both' sends depends on how its inputs", in_order=False
    ),
    "failed rows of several inputs": Case(
        failed_pairs, "join 'both' can't run in Spark: its .dead is read", in_order=False
    ),
    "a part of a split": Case(
        windowed, "'per_k-router' can't run in Spark: it is part of a split", parts=True
    ),
    "rows ahead": Case(windowed, "source 'rows' can't run in Spark: with ahead=", more={"ahead": "1h"}),
    "an idle source": Case(windowed, "source 'rows' has idle=", more={"idle": "1h"}),
    "a function of a program": Case(of_program, "apply 'f': function 'tests.overflow.refused.same' is in no"),
    "rows that are wanted sooner": Case(
        partial(windowed, qos=SOON), "sink 'out' wants its rows before 2s, and here 1 in 100 comes 3s later"
    ),
    "more state than there is memory": Case(
        all_notes, "has 2.* MiB of state; node 'spark1' takes 16 MiB at once", "E_MEMORY", note="x" * 75_000
    ),
    "a Spark that has ended": Case(
        windowed, "node 'spark2' runs on Spark, and its Spark session has ended", to="spark2"
    ),
    "a node that is full": Case(windowed, "no more than 0 fragments run here", "E_LIMIT"),
    "a node that it has no link with": Case(windowed, "'spark3'.* no peer", "E_PEER", to="spark3"),
}


class Ended(InProcess):
    """It has ended, and the first that meets it finds out."""

    def begin(self, key: str, groups: Any) -> None:
        self.down = "its Spark session has ended"
        super().begin(key, groups)


def participant(node: str, executor: InProcess) -> Participant:
    return Participant(executor, node=node, clock=SystemClock(), latency=TriggerLatency(1_500_000), shards=2)


def table(case: Case) -> pa.Table:
    dice = random.Random(1)
    times = [number // 4 - (dice.randrange(6) if number % 5 == 0 else 0) for number in range(600)]
    columns = {"ts": times, "k": [dice.randrange(5) for _ in times], "v": [dice.random() for _ in times]}
    return pa.table({**columns, "note": [case.note] * len(times)})


@pytest.fixture
def nodes(tmp_path: Path) -> Any:
    def config(name: str, *peers: str, **more: Any) -> dict[str, Any]:
        known = {peer: f"ipc://{tmp_path}/{peer}.sock" for peer in peers}
        return {
            "name": name,
            "listen": f"ipc://{tmp_path}/{name}.sock",
            "data": tmp_path / name,
            "peers": known,
            "limits": {"memory": "16 MiB", "credit": "5 MiB", "checkpoint_every": "100ms"},
            **more,
        }

    with contextlib.ExitStack() as stack:
        made = {
            "a": stack.enter_context(
                md.node(config("a", "spark1", "spark2", limits={"checkpoint_every": "100ms"}))
            )
        }
        for name, executor in (("spark1", InProcess()), ("spark2", Ended())):
            far = config(name, "a", spark={})
            there = partial(participant, name, executor)
            made[name] = stack.enter_context(Node(far, elsewhere=lambda _, there=there: there()))
        yield made


@pytest.mark.filterwarnings("ignore::medusa.errors.LateWarning", "ignore::medusa.errors.DeadRowWarning")
@pytest.mark.parametrize("name", CASES)
def test_what_is_refused_leaves_the_run_as_it_was(
    nodes: dict[str, Node], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = CASES[name]
    rows = table(case)
    got: list[Any] = []
    if case.build is of_program:
        monkeypatch.setattr(unchanged, "__module__", "__main__")
    with nodes["a"].connect() as fed:
        fed.deploy(case.query("q", **case.more), at={"a": ["rows"]})

        def read() -> None:
            for train in fed.subscribe("q.out", from_="oldest"):
                got.extend(train.batch.to_pylist())

        reader = threading.Thread(target=read)
        reader.start()
        fed.publish("q.rows", rows.slice(0, 300))
        fed.flush("60s")
        before = fed.find("q/rows")
        if case.code == "E_LIMIT":
            monkeypatch.setattr(fragments, "FRAGMENTS_MAX", 0)
        with pytest.raises(LinkError, match=case.says) as refused:
            fed.move("q/rows", to=case.to, timeout="20s")
        monkeypatch.undo()
        assert refused.value.code == case.code
        fed.publish("q.rows", rows.slice(300))
        fed.finish("q.rows")
        reader.join(DEADLINE_S)
        assert not reader.is_alive()
        assert fed.find("q/rows") == before
        assert [each["fragment"] for each in nodes["a"].status()["fragments"]] == ["q/rows"]
        assert not any(nodes[each].status()["fragments"] for each in ("spark1", "spark2"))
        assert nodes["a"].status()["moves"] == {"going": {}, "coming": {}}
    want = md.collect(case.query("q"), rows=rows)["out"]
    assert want.num_rows > 20
    ordered = (lambda found: found) if case.in_order else partial(sorted, key=repr)
    assert ordered(got) == ordered(want.to_pylist())


def offered(build: Any) -> Any:
    q = md.Query("q")
    build(q, q.source("rows", SCHEMA, time="ts", unit="s"))
    return cut(q.graph, {"a": ["rows"]}).fragments[-1]


def test_what_no_node_would_have_is_refused_too() -> None:
    """A deployment refuses these already: they could only come from a peer that doesn't."""
    named = offered(of_program)
    [box] = [each for each in named.graph.boxes if each.id == "f"]
    for change, says in (
        ({"in_flight": 4}, "apply 'f' can't run in Spark: its function is async"),
        ({"function": msgspec.structs.replace(box.function, name="")}, "its function is not registered"),
    ):
        boxes = tuple(
            msgspec.structs.replace(each, **change) if each is box else each for each in named.graph.boxes
        )
        graph = msgspec.structs.replace(named.graph, boxes=boxes)
        text, hint = reason(msgspec.structs.replace(named, graph=graph), latency_us=0)
        assert says in text
        assert hint


def nobody_answers() -> None:
    raise ConnectionRefusedError


@pytest.mark.parametrize(
    ("java", "ended"),
    [
        (None, True),  # stopped in this program
        (SimpleNamespace(sc=lambda: SimpleNamespace(isStopped=lambda: True)), True),
        (SimpleNamespace(sc=nobody_answers), True),
        (SimpleNamespace(sc=lambda: SimpleNamespace(isStopped=lambda: False)), False),
    ],
)
def test_a_session_that_has_ended_is_known_by_the_first_call_that_meets_it(java: Any, ended: bool) -> None:
    context = SimpleNamespace(defaultParallelism=2, _jsc=java)
    executor = OnSpark(SimpleNamespace(sparkContext=context))  # type: ignore[arg-type]
    assert executor.down == ""
    q = md.Query("q")
    windowed(q, q.source("rows", SCHEMA, time="ts", unit="s"))
    with pytest.raises(LostError, match="a state can't be given to Spark"):
        executor.begin("f", {0: (q.graph, Fragment(q.graph).snapshot())})
    assert bool(executor.down) == ended
    there = participant("spark1", executor)  # type: ignore[arg-type]
    if not ended:
        there.accept(offered(windowed))
        return
    with pytest.raises(LinkError, match="and its Spark session has ended") as refused:
        there.accept(offered(windowed))
    assert refused.value.code == "E_DECLINED"
