"""What a node serves beside its boxes: its own load and that of its links."""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from msgspec import inspect
from prometheus_client.parser import text_string_to_metric_families as parse

import medusa as md
from medusa.apps.dashboard.details import details_of
from medusa.apps.dashboard.network import Seen, network_of
from medusa.apps.dashboard.picture import key_of
from medusa.engine.stats import STATS_SCHEMA
from medusa.nodes.config.fields import described
from medusa.nodes.config.settings import Settings
from medusa.nodes.config.settings_load import LoadRules
from medusa.nodes.load.load_status import node_load
from medusa.nodes.load.loads import NodeLoads
from medusa.runtime.client.status.status_tables import SCHEMAS, _schema
from medusa.runtime.exposition.prometheus import families
from medusa.runtime.exposition.prometheus_node import node_families
from medusa.runtime.exposition.server import status_rows
from medusa.sim.actors.node import NodeMachine
from medusa.wire.outbox import Outbox
from medusa.wire.status_and_metrics import (
    AgreementStatus,
    BackupsStatus,
    BoxStatus,
    ConsistencyStatus,
    FragmentStatus,
    HeldBackupStatus,
    LinkStatus,
    LoadStatus,
    Metric,
    MissingStatus,
    NodeStatus,
    OutputStatus,
    ReplicasStatus,
    SecondaryStatus,
    StatelessStatus,
    metrics_of,
    plain,
    status_of,
)
from tests.cli.test_status import printed
from tests.nodes.test_explaining import Three

DOCS = Path(__file__).parents[2] / "docs"
COMPUTED = {
    "medusa_link_up",
    "medusa_fragment_secondaries",
    "medusa_fragment_source_lost_rows",
    "medusa_stream_state",
}
"""Those that aren't a field of the status."""


def parts(kind: inspect.Type) -> Iterator[type[msgspec.Struct]]:
    """The structs that a status is made of."""
    match kind:
        case inspect.StructType(cls=cls, fields=fields):
            yield cls
            for field in fields:
                yield from parts(field.type)
        case inspect.UnionType(types=kinds):
            for each in kinds:
                yield from parts(each)
        case inspect.DictType(value_type=inner) | inspect.VarTupleType(item_type=inner):
            yield from parts(inner)


def found(node: NodeMachine) -> dict[tuple[str, str], float]:
    """(metric, peer) -> value."""
    status = node.brain.status(node.clock.monotonic_us())
    made = list(node_families(status_of(status)))
    served = [
        metric
        for kind in set(parts(inspect.type_info(NodeStatus))) - {BoxStatus}
        for metric in metrics_of(kind).values()
    ]
    assert len({each.name for each in made}) == len(made) == len(served) + len(COMPUTED)
    told = {(each.documentation, each.type) for each in made}
    assert told >= {(each.text, "counter" if each.counts else "gauge") for each in served}
    samples = [sample for each in made for sample in each.samples]
    assert {sample.labels["node"] for sample in samples} == {node.name}
    return {(sample.name, sample.labels.get("peer", "")): sample.value for sample in samples}


def test_a_node_tells_its_load_and_its_links_and_nothing_that_it_does_not_know() -> None:
    three = Three()
    three.publish("e1", "a", *range(1, 500))
    three.passes(3_000_000)
    three.federation.nodes["e2"].crash()
    three.passes(2_000_000)
    core = three.federation.nodes["core"]
    values, load = found(core), core.brain.loads
    assert values["medusa_link_up", "e1"] == 1
    assert values["medusa_link_up", "e2"] == 0
    rates = load.links.of("e1")
    assert rates is not None
    assert values["medusa_link_received_bytes_per_second", "e1"] == rates[1] > 0
    assert values["medusa_node_load_ratio", ""] == load.load
    assert values["medusa_node_overloaded", ""] == 0
    assert ("medusa_link_bandwidth_ratio", "e1") not in values, "nobody said what the line carries"
    assert not any(peer not in ("", "e1", "e2") for _, peer in values), "clients aren't told one by one"


def test_who_has_a_guarded_fragment_tells_who_stands_by() -> None:
    secondaries = {
        "s": SecondaryStatus(state="following", since_us=1, behind_bytes=300),
        "t": SecondaryStatus(state="missing"),
    }
    some = ReplicasStatus(owner="n", secondaries=secondaries)
    none = ReplicasStatus(owner="n", secondaries={"t": SecondaryStatus(state="missing")}, alone_us=1_500_000)
    fragments = (
        FragmentStatus(fragment="q/a", query="q", configuration=2, replicas=some),
        FragmentStatus(fragment="q/b", query="q", configuration=2, replicas=none),
        FragmentStatus(fragment="q/c", query="q"),
    )
    made = node_families(NodeStatus(node="n", fragments=fragments))
    guarded = [f"medusa_fragment_{name}" for name in ("secondaries", "alone_seconds", "behind_bytes")]
    samples = [each for one in made for each in one.samples if each.name in guarded]
    values = {
        (each.name.removeprefix("medusa_fragment_"), each.labels["fragment"], each.labels.get("secondary")): (
            each.value
        )
        for each in samples
    }
    assert values == {
        ("secondaries", "q/a", None): 1,
        ("alone_seconds", "q/a", None): 0,
        ("behind_bytes", "q/a", "s"): 300,
        ("secondaries", "q/b", None): 0,
        ("alone_seconds", "q/b", None): 1.5,
    }
    assert {(each.labels["node"], each.labels["query"]) for each in samples} == {("n", "q")}


def test_what_is_not_decided_of_a_query_is_told_with_for_how_long() -> None:
    why = "1 of 2 voters is away (m): nothing is taken over until it is back"
    of = AgreementStatus(
        waits=("takeovers",), why=why, number=2, coordinator="n", voters=("n", "m"), waits_us=2_500_000
    )
    status = NodeStatus(node="n", undecided={"q": of})
    name = "medusa_query_undecided_seconds"
    samples = [each for one in node_families(status) for each in one.samples if each.name == name]
    assert [(each.labels, each.value) for each in samples] == [({"node": "n", "query": "q"}, 2.5)]
    details = details_of(network_of([Seen(address="tcp://n:1", name="n", status=status)]))
    assert ("UNDECIDED: query q", f"{why}, for 2 s") in details[key_of("node", "n")][1]


@pytest.mark.parametrize(("others", "shown"), [((), "LOST"), (("s",), "WITHOUT STATE")])
def test_a_fragment_whose_owner_has_nothing_is_told_and_whether_it_is_lost(
    others: tuple[str, ...], shown: str
) -> None:
    of = StatelessStatus(
        query="q", epoch=2, owner="n", may_have_it=others, lost=not others, why="undeploy it"
    )
    status = NodeStatus(node="n", without_state={"q/a": of})
    name = "medusa_fragment_state_lost"
    samples = [each for one in node_families(status) for each in one.samples if each.name == name]
    labels = {"node": "n", "query": "q", "fragment": "q/a"}
    assert [(each.labels, each.value) for each in samples] == [(labels, 0 if others else 1)]
    details = details_of(network_of([Seen(address="tcp://n:1", name="n", status=status)]))
    assert (f"{shown}: q/a", "undeploy it") in details[key_of("node", "n")][1]


def test_what_a_node_holds_for_others_is_told_and_shown() -> None:
    whole = HeldBackupStatus(owner="m", epoch=3, bytes=2048, age_us=1_450_000)
    coming = HeldBackupStatus(owner="n", epoch=1, bytes=1024)
    backups = BackupsStatus(bytes=3072, limit_bytes=1 << 20, held={"q/a": whole, "r/b": coming})
    status = NodeStatus(node="n", backups=backups)
    names = [f"medusa_{each}" for each in ("fragment_backup_bytes", "fragment_backup_age_seconds")]
    names += ["medusa_node_backups_bytes", "medusa_node_backups_limit_bytes"]
    samples = [each for one in node_families(status) for each in one.samples if each.name in names]
    assert {
        (each.name, each.labels.get("query"), each.labels.get("fragment")): each.value for each in samples
    } == {
        (names[0], "q", "q/a"): 2048,
        (names[0], "r", "r/b"): 1024,
        (names[1], "q", "q/a"): 1.45,
        (names[2], None, None): 3072,
        (names[3], None, None): 1 << 20,
    }
    details = details_of(network_of([Seen(address="tcp://n:1", name="n", status=status)]))
    told = "of m, epoch 3: 2 KiB, newest checkpoint 1s 400ms old"
    assert ("holds q/a", told) in details[key_of("node", "n")][1]
    text = printed([plain(status)])
    assert f"  holds q/a {told}\n" in text
    assert "  holds r/b of n, epoch 1: 1 KiB, no checkpoint is whole yet\n" in text
    assert "  holds 3 KiB of 1 MiB for others\n" in text


def test_how_a_stream_with_delay_is_and_what_is_missing_is_told_with_units() -> None:
    missing = MissingStatus(source="b", stream="q.b", kind="node", origin="m", for_us=2_500_000)
    of = ConsistencyStatus(
        state="up_failure",
        for_us=700_000,
        missing=(missing,),
        tentative_rows=70,
        uncorrected_rows=50,
        behind_rows=900,
        behind_us=2_600_000,
        dropped_rows=3,
        late_rows=2,
        held_bytes=4096,
        disk_bytes=8192,
        suspended=("q.c of m",),
    )
    well = OutputStatus(sink="well", stream="q.well", consistency=ConsistencyStatus())
    outputs = (OutputStatus(sink="out", stream="q.out", consistency=of), well)
    bare = FragmentStatus(fragment="r/f", query="r", outputs=(OutputStatus(sink="out", stream="r.out"),))
    status = NodeStatus(
        node="n", fragments=(FragmentStatus(fragment="q/f", query="q", outputs=outputs), bare)
    )
    samples = [each for one in node_families(status) for each in one.samples]
    told = [each for each in samples if each.name.startswith("medusa_stream_")]
    assert {(each.labels["node"], each.labels["query"]) for each in told} == {("n", "q")}
    values = {
        each.name.removeprefix("medusa_stream_"): each.value
        for each in told
        if each.labels["stream"] == "q.out" and "state" not in each.labels
    }
    assert values == {
        "state_seconds": 0.7,
        "input_missing": 1,
        "fork_refused": 0,
        "tentative_rows_total": 70,
        "uncorrected_rows": 50,
        "behind_rows": 900,
        "behind_seconds": 2.6,
        "dropped_rows_total": 3,
        "late_rows": 2,
        "held_bytes": 4096,
        "inputs_on_disk_bytes": 8192,
        "inputs_suspended": 1,
        "input_missing_seconds": 2.5,
    }
    states = {
        (each.labels["stream"], each.labels["state"])
        for each in told
        if "state" in each.labels and each.value
    }
    assert states == {("q.out", "up_failure"), ("q.well", "stable")}
    [age] = [each.labels for each in told if each.name.endswith("input_missing_seconds")]
    assert (age["input"], age["kind"], age["from"]) == ("q.b", "node", "m")


def test_a_field_with_a_metric_is_seen_wherever_a_status_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind, field, metric in (
        (NodeStatus, "rows_in", Metric("came_rows", "Rows that came.", "rows that came", counts=True)),
        (FragmentStatus, "lag_us", Metric("late_seconds", "How late it is.", "how late")),
        (BoxStatus, "unmoved_us", Metric("unmoved_seconds", "How long it stands.", "how long")),
    ):
        monkeypatch.setitem(metrics_of(kind), field, metric)
    fragment = FragmentStatus(fragment="q/a", lag_us=2_500_000, boxes={"a": BoxStatus(unmoved_us=3_000_000)})
    status = NodeStatus(node="n", rows_in=7, fragments=(fragment,))
    families_of = [*families(status_rows(status)), *node_families(status)]
    made = {each.name: (each.type, [one.value for one in each.samples]) for each in families_of}
    assert made["medusa_box_unmoved_seconds"] == ("gauge", [3])
    assert made["medusa_node_came_rows"] == ("counter", [7])
    assert made["medusa_fragment_late_seconds"] == ("gauge", [2.5])
    assert "  rows that came: 7\n" in printed([plain(msgspec.structs.replace(status, fragments=()))])
    details = details_of(network_of([Seen(address="tcp://n:1", name="n", status=status)]))
    assert ("rows that came", "7") in details[key_of("node", "n")][1]
    assert ("how long", "3 s") in details[key_of("box", "n", "q/a", "a")][1]
    assert ("how late", "2.5 s") in details[key_of("fragment", "n", "q/a")][1]
    assert "rows_in" in _schema("node", NodeStatus).names


def test_it_is_served_with_the_boxes(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder, said = tmp_path_factory.mktemp("m"), list[str]()
    config = {"name": "n", "listen": f"ipc://{folder}/n", "data": folder / "d", "metrics": "127.0.0.1:0"}
    with md.node(config, report=lambda level, line: said.append(line)) as node, node.connect("30s"):
        url = next(match[1] for line in said if (match := re.search(r"(http://\S+/metrics)", line)))
        with urllib.request.urlopen(url, timeout=30) as answer:
            names = {family.name for family in parse(answer.read().decode())}
    assert {"medusa_node_memory_bytes", "medusa_node_cpu_ratio", "medusa_box_rows_in"} <= names


def test_every_metric_and_column_and_setting_is_documented() -> None:
    metrics, brain = ((DOCS / f"{page}.md").read_text() for page in ("metrics", "brain"))
    assert all(f"`{each.name}`" in metrics for each in node_families(NodeStatus(node="n")))
    for table, kind in (
        ("nodes", LoadStatus),
        ("nodes", NodeStatus),
        ("links", LinkStatus),
        ("boxes", BoxStatus),
    ):
        assert metrics_of(kind).keys() <= set(SCHEMAS[table].names)
    for table, schema in SCHEMAS.items():
        row = next(
            line for line in brain.splitlines() if line.startswith(f"| `{table}` |") and "`node`" in line
        )
        for name in schema.names:
            documented = f"`{name}`" in row or (table == "boxes" and name in STATS_SCHEMA.names)
            assert documented, f"{table}.{name}"
    load = node_load(NodeLoads(Settings(name="n", listen="", data=""), Outbox(), {}), 0)
    for field in (*msgspec.structs.asdict(load), *(each.key for each in described(LoadRules)), "bandwidth"):
        assert f"`{field}`" in brain or f"\n{field} = " in brain or f"[load.{field}]" in brain, field
