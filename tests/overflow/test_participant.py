"""A node whose fragments run elsewhere is a node like others: moves, deaths, refusals, what it says."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

import msgspec
import pytest

import medusa as md
from medusa.errors import ConfigError, LinkError
from medusa.nodes.config.settings import parse
from medusa.nodes.config.settings_spark import SparkRules
from medusa.nodes.spec.fragment_spec import FragmentSpec as Spec
from medusa.runtime.embedded_node.node_thread import Node
from medusa.runtime.machine.clock import SystemClock
from medusa.sim.actors.federation import Federation
from medusa.spark.overflow.participant import Participant, TriggerLatency, reason
from tests.nodes import moved
from tests.nodes.moved import World
from tests.overflow.in_process import InProcess
from tests.overflow.slow_triggers import SlowTriggers


def participant(node: str = "m2", least_us: int = 0) -> Participant:
    return Participant(
        InProcess(), node=node, clock=SystemClock(), latency=TriggerLatency(least_us), shards=2
    )


class Overflowing(Federation):
    """A federation of which some nodes run their fragments elsewhere."""

    there = ("m2",)
    hosts: dict[str, list[SlowTriggers]]

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.hosts = {}
        for name in self.there:
            self.nodes[name].make_host = partial(self.host, name)
            self.nodes[name].accept = participant(name).accept

    def host(self, name: str, *arguments: Any, **more: Any) -> SlowTriggers:
        made = SlowTriggers(self.world, participant(name), *arguments, **more)
        self.hosts.setdefault(name, []).append(made)
        return made


@pytest.fixture
def _there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moved, "Federation", Overflowing)


@pytest.mark.usefixtures("_there")
def test_a_fragment_goes_there_under_load_and_comes_back_with_the_same_rows() -> None:
    world = World()
    reply, figures = world.move("m2", timeout_ms=5000)
    assert (reply.code, figures["node"]) == ("", "m2")
    world.fed.run(for_us=30_000)
    reply, figures = world.move("m1", at="e", timeout_ms=5000)
    assert (reply.code, figures["node"]) == ("", "m1")
    assert world.owners == {1: "m1", 2: "m2", 3: "m1"}
    [host] = world.fed.hosts["m2"]
    assert max(host.triggers) > 1, "nothing was gathered"
    world.check()


@pytest.mark.usefixtures("_there")
@pytest.mark.parametrize("unsynced", ["lost", "kept", "torn"])
@pytest.mark.parametrize("turn", [20, 60, 110])
def test_it_dies_at_a_step_of_a_move_and_nothing_is_lost_nor_comes_twice(turn: int, unsynced: str) -> None:
    world = World(kill=("m2", turn), unsynced=unsynced)
    world.move_under_count()
    world.check()


@pytest.mark.usefixtures("_there")
def test_it_dies_while_it_has_the_fragment_and_goes_on_from_its_checkpoint() -> None:
    world = World()
    assert world.move("m2", timeout_ms=5000)[0].code == ""
    for _ in range(3):
        world.fed.run(for_us=15_000)
        world.die(world.fed.nodes["m2"])
        world.fed.run(for_us=60_000)
    assert len(world.fed.hosts["m2"]) == 4
    world.check()
    assert world.where == ["m2"]


@pytest.mark.usefixtures("_there")
def test_what_it_declines_is_refused_at_once_and_the_run_goes_on_unchanged() -> None:
    world = World()
    node = world.fed.nodes["m2"]
    node.brain.accepting.accept = partial(_declined, "no")
    reply, _ = world.move("m2", timeout_ms=60_000)
    assert (reply.code, reply.text) == ("E_DECLINED", "node 'm2': no")
    assert world.where == ["m1"]
    assert world.owners == {1: "m1"}
    world.check()
    assert world.fed.hosts["m2"][0].triggers == []


def _declined(text: str, spec: Spec) -> None:
    raise LinkError(text, code="E_DECLINED")


# --- what it takes ------------------------------------------------------------------------------

SCHEMA = {"ts": "int64", "k": "int64", "v": "float64"}


@md.register("tests.overflow.doubled", version=1)
def doubled(batch: Any) -> Any:
    return batch


def offered(build: Any, at: str | None = None, **more: Any) -> Spec:
    from medusa.nodes.placement.placement import cut

    q = md.Query("q")
    source = {"time": "ts", "unit": "s", "slack": "1s"} | more
    build(q, q.source("rows", SCHEMA, **source))
    return cut(q.graph, {"a": ["rows"], **({} if at is None else {"b": [at]})}).fragments[-1]


def windowed(q: md.Query, rows: Any, **sink: Any) -> None:
    q.sink("out", rows.window("1s").group_by("k").aggregate(n=md.count(), name="per_k"), **sink)


def of_program(q: md.Query, rows: Any) -> None:
    q.sink("out", rows.apply(doubled, SCHEMA, name="f"))


@pytest.mark.parametrize(
    ("build", "more", "says"),
    [
        (lambda q, rows: q.sink("out", rows.union(rows.filter("v > 0"), name="both")), {}, "union 'both'"),
        (windowed, {"ahead": "1h"}, "source 'rows' can't run in Spark: with ahead="),
        (windowed, {"idle": "1s"}, "source 'rows' has idle="),
        (
            partial(windowed, qos=md.QoS(latency=[(0, 1), ("1s", 1), ("2s", 0)])),
            {},
            "sink 'out' wants its rows before 2s, and here 1 in 100 comes 3s later",
        ),
    ],
)
def test_what_it_refuses_names_the_box_and_the_reason(build: Any, more: Any, says: str) -> None:
    spec = offered(build, **more)
    with pytest.raises(LinkError, match="node 'm2' runs on Spark") as refused:
        participant(least_us=1_500_000).accept(spec)
    assert says in refused.value.message
    assert refused.value.code == "E_DECLINED"
    assert refused.value.hint


def test_a_part_of_a_split_is_refused() -> None:
    q = md.Query("q")
    windowed(q, q.source("rows", SCHEMA, time="ts", unit="s"))
    from medusa.nodes.placement.placement import cut

    parts = cut(q.split("per_k", 2).graph, {"a": ["rows"], "b": ["per_k-1"], "c": ["per_k-2", "per_k"]})
    said = [reason(each, latency_us=0)[0] for each in parts.fragments]
    assert all("it is part of a split" in each for each in said if each), said
    assert any(said)


def test_a_fragment_that_is_to_be_forked_is_refused() -> None:
    """Also one that is moved here: a plan refuses it beforehand."""
    spec = offered(windowed, at="per_k")
    assert reason(spec, latency_us=0) == ("", "")
    said, hint = reason(msgspec.structs.replace(spec, delay_us=2_000_000), latency_us=0)
    assert "has delay=, and no copy of it could go on" in said
    assert hint == "leave it at a node that runs its fragments itself"


def test_functions_of_the_program_and_async_ones_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = offered(of_program)
    assert reason(spec, latency_us=0) == ("", "")
    monkeypatch.setattr(doubled, "__module__", "__main__")
    assert "apply 'f': function 'tests.overflow.doubled' is in no module" in reason(spec, latency_us=0)[0]
    boxes = tuple(
        msgspec.structs.replace(box, in_flight=4) if box.id == "f" else box for box in spec.graph.boxes
    )
    graph = msgspec.structs.replace(spec.graph, boxes=boxes)
    said = reason(msgspec.structs.replace(spec, graph=graph), latency_us=0)[0]
    assert "apply 'f' can't run in Spark: its function is async" in said


def test_what_comes_in_time_and_from_other_fragments_is_taken() -> None:
    sooner = partial(windowed, qos=md.QoS(latency=[(0, 1), ("1s", 0)]))
    assert reason(offered(sooner), latency_us=999_999) == ("", "")
    assert reason(offered(sooner), latency_us=1_000_000)[0]
    loss = partial(windowed, qos=md.QoS(loss=[(100, 1), (0, 0)]))
    assert reason(offered(loss), latency_us=10**9) == ("", "")
    assert reason(offered(windowed, at="per_k"), latency_us=0) == ("", "")


def test_what_triggers_take_beside_their_work_is_told_as_the_median() -> None:
    latency = TriggerLatency()
    assert latency.overhead_us == 0
    for took_us, worked_us in ((50, 40), (900, 100), (30, 60), (70, 50), (5, 2)):
        latency.add(took_us, worked_us)
    assert latency.overhead_us == sorted([10, 800, 0, 20, 3])[2]


def test_latencies_are_those_of_the_last_triggers_and_no_less_than_was_said() -> None:
    latency = TriggerLatency(least_us=30)
    assert latency.quantile(0.99) == 30
    for took_us in range(1, 1001):
        latency.add(took_us)
    assert (latency.quantile(0.5), latency.quantile(0.99)) == (901, 999)
    assert TriggerLatency(5000).quantile(0.5) == 5000


# --- its configuration --------------------------------------------------------------------------

BASE = 'name = "a"\nlisten = "ipc:///tmp/a"\ndata = "d"\n'


def test_its_table_is_read() -> None:
    assert parse(BASE).spark is None
    assert parse(f"{BASE}[spark]\n").spark == SparkRules()
    text = 'master = "spark://h:7077"\nmemory = "2g"\nshards = 8\nlatency = "2s"\nconf = {"a.b" = "c"}\n'
    assert parse(f"{BASE}[spark]\n{text}").spark == SparkRules(
        master="spark://h:7077", memory="2g", shards=8, latency_us=2_000_000, conf={"a.b": "c"}
    )


@pytest.mark.parametrize(
    ("text", "field", "hint"),
    [
        ('mastr = "x"', "mastr", "did you mean 'master'?"),
        ("master = 1", "master", "local[2]"),
        ('master = "local2"', "master", "spark://host:7077"),
        ('memory = "much"', "memory", '"1g"'),
        ("shards = 0", "shards", "1 to 256"),
        ("shards = true", "shards", "1 to 256"),
        ("latency = 1", "latency", "allowed: 0s to 10 min"),
        ('latency = "1 day"', "latency", "allowed: 0s to 10 min"),
        ("conf = {a = 1}", "conf", "as text"),
    ],
)
def test_what_is_not_allowed_says_line_field_and_what_is(text: str, field: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(f"{BASE}[spark]\n{text}\n")
    assert field in caught.value.message
    assert hint in caught.value.hint
    assert "line 5" in caught.value.message


def test_an_ordinary_node_does_not_begin_with_it(tmp_path: Any) -> None:
    config = {"name": "a", "listen": "tcp://127.0.0.1:*", "data": tmp_path / "a", "spark": {}}
    with pytest.raises(ConfigError, match="medusa spark-participant"), md.node(config):
        pass


# --- over sockets -------------------------------------------------------------------------------


def test_it_is_found_with_its_latency_and_capacity_and_runs_what_moves_there(tmp_path: Any) -> None:
    def config(name: str, **more: Any) -> dict[str, Any]:
        limits = {"checkpoint_every": "100ms"}
        listen = f"ipc://{tmp_path}/{name}.sock"
        return {"name": name, "listen": listen, "data": tmp_path / name, "limits": limits, **more}

    a = config("a", peers={"spark1": f"ipc://{tmp_path}/spark1.sock"})
    there = config("spark1", peers={"a": f"ipc://{tmp_path}/a.sock"}, spark={"shards": 2})
    q = md.Query("q")
    rows = q.source("rows", SCHEMA, time="ts", unit="us")
    q.sink("out", rows.window("100us").group_by("k").aggregate(n=md.count(), v=md.sum("v"), name="w"))
    mixed = md.Query("mixed")
    both = mixed.source("rows", SCHEMA, time="ts", unit="us")
    mixed.sink("out", both.union(both.filter("v > 0"), name="both"))

    def refused(ask: Any) -> None:
        with pytest.raises(LinkError, match="runs on Spark") as caught:
            ask()
        assert caught.value.code == "E_DECLINED"

    got: list[tuple[int, float]] = []
    with (
        md.node(a) as node,
        Node(there, elsewhere=lambda settings: participant("spark1")) as far,
        node.connect("60s") as fed,
        far.connect() as other,
    ):
        fed.deploy(q, at={"a": ["rows"]})

        def read() -> None:
            for train in other.subscribe("q.out", from_="oldest"):
                table = train.batch
                got.extend(zip(table["n"].to_pylist(), table["v"].to_pylist(), strict=True))

        reader = threading.Thread(target=read)
        reader.start()
        for part in range(60):
            times = list(range(part * 100, part * 100 + 100))
            fed.publish("q.rows", {"ts": times, "k": [t % 10 for t in times], "v": [1.0 * t for t in times]})
            if part == 20:
                assert fed.move("q/rows", to="spark1")["node"] == "spark1"
                [one] = far.status()["fragments"]
                assert one["fragment"] == "q/rows"
                assert set(one["boxes"]) == {"rows", "w", "out"}
                refused(lambda: other.split("q/w", 2))
                refused(lambda: fed.deploy(mixed, at={"spark1": ["rows"]}))
                assert [each["fragment"] for each in far.status()["fragments"]] == ["q/rows"]
            if part == 40:
                assert other.move("q/rows", to="a")["node"] == "a"
        fed.finish("q.rows")
        reader.join(60)
        assert not reader.is_alive()
        listed = other.find("spark1")
        assert (listed["engine"], listed["cores"]) == ("spark", 1)
        told = far.status()["runs_on"]
        assert told["engine"] == "spark"
        assert told["cores"] == 1
        assert "aggregate" in told["kinds"]
    want = [
        (10, float(sum(t for t in range(w * 100, w * 100 + 100) if t % 10 == k)))
        for w in range(60)
        for k in range(10)
    ]
    assert sorted(got) == sorted(want)
