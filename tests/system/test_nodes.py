"""Three node processes: the same answer as in one program, whatever is killed on the way."""

from __future__ import annotations

import shutil
import socket

import numpy as np
import pyarrow as pa
import pytest
import zmq

import medusa as md
from tests.system.nodes import (
    PATIENT_DEPLOYMENTS,
    PATIENT_READERS,
    TIMEOUT,
    Nodes,
    ordered,
    run_to_end,
    until,
)

pytestmark = pytest.mark.system

ROWS = 24_000
EDGES = ("edge-1", "edge-2")
AT = {
    "edge-1": ["flows", "per_src"],
    "edge-2": ["flows", "per_src"],
    "core": ["heavy", "wide", "both", "all", "out"],
}


def query() -> md.Query:
    """Counts per source over split windows; who is heavy and wide."""
    q = md.Query("net")
    schema = {"ts": "timestamp[us, UTC]", "src": "utf8", "dport": "int32"}
    flows = q.source("flows", schema, time="ts", slack="2s")
    windows = flows.window("10s").group_by("src")
    per_src = windows.aggregate(n=md.count(), p=md.count_distinct("dport"), name="per_src")
    heavy = per_src.filter("n > 3", name="heavy")
    wide = per_src.filter("p > 3", name="wide").select("window_start", "window_end", "src", name="ports")
    q.sink("all", per_src)
    q.sink("out", heavy.join(wide, on=["window", "src"], name="both"))
    return q


def placed() -> dict[str, list[str]]:
    return {**AT, "core": [*AT["core"], "ports"]}


def trace(rows: int = ROWS) -> pa.Table:
    """Flows in the order of arrival: jittered by up to 2 s of their time."""
    rng = np.random.default_rng(7)
    times = np.sort(rng.integers(0, 300_000_000, rows))
    arrival = np.argsort(times + rng.integers(0, 2_000_000, rows), kind="stable")
    table = pa.table(
        {
            "ts": pa.array(times).cast(pa.timestamp("us", tz="UTC")),
            "src": pa.array([f"10.0.0.{i}" for i in rng.zipf(1.3, rows) % 400]),
            "dport": pa.array(rng.integers(0, 40, rows), pa.int32()),
        }
    )
    return table.take(pa.array(arrival))


def in_order(table: pa.Table) -> pa.Table:
    return table.sort_by([("window_end", "ascending"), ("src", "ascending")]).combine_chunks()


@pytest.fixture
def nodes(tmp_path_factory, request):
    # A socket's path is short; pytest's own folders may not be.
    folder = tmp_path_factory.mktemp("n")
    # A test that kills nodes reads nothing meanwhile, on a busy machine for longer than a reader may.
    limits = f'checkpoint_every = "200ms"\n{PATIENT_READERS}'
    made = Nodes(folder, ["edge-1", "edge-2", "core"], limits=limits)
    yield made
    made.close()


@pytest.fixture(scope="module")
def expected():
    found = md.collect(query(), flows=trace())
    assert found["out"].num_rows > 50
    return {name: in_order(found[name]) for name in ("all", "out")}


class Feeders:
    """One publisher per edge, each with every second row, slice by slice."""

    def __init__(self, nodes: Nodes, table: pa.Table) -> None:
        self.clients = {edge: md.connect(nodes.addresses[edge], timeout="30s") for edge in EDGES}
        self._parts = {
            edge: table.take(pa.array(np.arange(i, len(table), 2))) for i, edge in enumerate(EDGES)
        }
        self._done = 0

    def publish(self, share: float) -> None:
        """Go on to this share of the rows."""
        for edge, client in self.clients.items():
            part = self._parts[edge]
            end = round(len(part) * share)
            begin = round(len(part) * self._done)
            for start in range(begin, end, 500):
                client.publish("net.flows", part.slice(start, min(500, end - start)))
        self._done = share

    def finish(self) -> None:
        for client in self.clients.values():
            client.finish("net.flows")
        for client in self.clients.values():
            client.flush("60s")
            client.close()

    def close(self) -> None:
        for client in self.clients.values():
            client.close()


def read(client, sink: str) -> pa.Table:
    with client.subscribe(f"net.{sink}", from_="oldest") as trains:
        table = trains.table("60s")
        assert trains.lost_rows == 0
    return in_order(table)


def test_three_nodes_answer_as_one_program(nodes, expected):
    nodes.start()
    with md.connect(nodes.addresses["core"], timeout=TIMEOUT) as core:
        core.deploy(query(), at=placed())
        feeders = Feeders(nodes, trace())
        feeders.publish(1.0)
        feeders.finish()
        for sink, want in expected.items():
            assert read(core, sink).equals(want), sink
        status = core.status()
        assert status["lost_rows"] == 0
        assert status["queries"]["net"]["state"] == "running"
        core.undeploy("net")
        assert core.status()["fragments"] == []
    for name in nodes.names:
        assert nodes.stop(name) == 0, nodes.log(name)


@pytest.mark.parametrize("victim", ["edge-1", "core"])
def test_a_node_killed_in_the_middle_loses_and_repeats_nothing(nodes, expected, victim):
    nodes.start()
    with md.connect(nodes.addresses["core"], timeout="30s") as core:
        core.deploy(query(), at=placed())
        feeders = Feeders(nodes, trace())
        with core.subscribe("net.all", from_="oldest") as trains:
            feeders.publish(0.5)
            first = trains.next("60s")
            assert first is not None
            nodes.kill(victim)
            nodes.start(victim)
            feeders.publish(0.8)
            nodes.kill(victim)
            feeders.publish(0.9)
            nodes.start(victim)
            feeders.publish(1.0)
            feeders.finish()
            rest = trains.table("60s")
            assert trains.lost_rows == 0
        got = pa.concat_tables([pa.Table.from_batches([first.batch]), rest])
        assert in_order(got).equals(expected["all"]), nodes.log(victim)
        assert read(core, "out").equals(expected["out"])


def test_all_nodes_killed_at_once_go_on(nodes, expected):
    nodes.start()
    with md.connect(nodes.addresses["core"], timeout="30s") as core:
        core.deploy(query(), at=placed())
        feeders = Feeders(nodes, trace())
        feeders.publish(0.6)
        for name in nodes.names:
            nodes.kill(name)
        nodes.start()
        feeders.publish(1.0)
        feeders.finish()
        for sink, want in expected.items():
            assert read(core, sink).equals(want), sink


def test_a_deleted_data_folder_is_told(nodes):
    """What an edge held is gone: readers, publishers and the log say so; nothing pretends."""
    nodes.start()
    with md.connect(nodes.addresses["core"], timeout="30s") as core:
        core.deploy(query(), at=placed())
        feeders = Feeders(nodes, trace(4000))
        feeders.publish(0.5)
        nodes.kill("edge-1")
        shutil.rmtree(nodes.data("edge-1"))
        nodes.start("edge-1")

        def refusals():
            fragment = core.status()["fragments"][0]
            return [each["refusal"] for each in fragment["inputs"] if "E_STREAM" in each["refusal"]]

        assert "node 'edge-1' has no stream 'net.per_src" in until(refusals)[0]
        # By name, rows go where the source still is.
        until(lambda: feeders.clients["edge-1"].find("net.flows", "source")["holders"] == ["edge-2"])
        feeders.close()
        core.undeploy("net")
        core.deploy(query(), at=placed())


def test_a_refused_deployment_leaves_nothing(nodes):
    config = nodes.config("core")
    config.write_text(config.read_text().replace(PATIENT_DEPLOYMENTS, 'deploy_timeout = "2s"'))
    nodes.start()
    with md.connect(nodes.addresses["core"], timeout=TIMEOUT) as core:
        with pytest.raises(md.QueryError, match="no node 'edge-9'"):
            core.deploy(query(), at={("edge-9" if n == "edge-1" else n): b for n, b in placed().items()})
        nodes.kill("edge-2")
        with pytest.raises(md.LinkError, match="no answer from 'edge-2'"):
            core.deploy(query(), at=placed())
        nodes.start("edge-2")
        for name in nodes.names:
            with md.connect(nodes.addresses[name], timeout="30s") as each:
                until(lambda each=each: each.status()["fragments"] == [], what=f"{name} is empty")
        until(lambda: not core.status()["queries"])
        ordered(lambda: core.deploy(query(), at=placed()), again=("E_TIMEOUT", "E_BUSY"))
        with pytest.raises(md.LinkError, match="query 'net' is deployed already"):
            core.deploy(query(), at=placed())


def test_names_that_are_not_there(nodes):
    nodes.start()
    with (
        md.connect(nodes.addresses["core"], timeout=TIMEOUT) as core,
        md.connect(nodes.addresses["edge-1"], timeout=TIMEOUT) as edge,
    ):
        core.deploy(query(), at=placed())
        with pytest.raises(md.LinkError, match="not at node 'core' but at 'edge-1' and 'edge-2'"):
            core.publish("net.flows", trace(10))
        with pytest.raises(md.LinkError, match=r"did you mean 'net\.flows'"):
            edge.publish("net.flow", trace(10))
        with pytest.raises(md.LinkError, match=r"has no stream 'net\.otu'.*did you mean 'net\.out'"):
            core.subscribe("net.otu")
        with pytest.raises(md.LinkError, match="no query 'nett'"):
            core.undeploy("nett")
        with pytest.raises(md.DataError, match="'src' is missing"):
            edge.publish("net.flows", {"ts": [1], "dport": [1]})
        with pytest.raises(md.LinkError, match="from_ is 'yesterday'"):
            core.subscribe("net.out", from_="yesterday")
        edge.undeploy("net")
        assert core.queries() == []


def test_garbage_at_the_socket_harms_nothing(nodes):
    address = nodes.start_anywhere("core")
    port = int(address.rsplit(":", 1)[1])
    with md.connect(address, timeout="30s") as client:
        for garbage in (b"GET / HTTP/1.1\r\n\r\n", b"\x00" * 1000, b"\xff" * 64):
            with socket.create_connection(("127.0.0.1", port)) as stranger:
                stranger.sendall(garbage)
                assert client.status()["node"] == "core"
        context = zmq.Context()
        for frames in ([b""], [b"\xc1" * 10], [b"x"] * 3, [b"x" * 100_000], [b"\x93\xa5hello\x01\x01"]):
            stranger = context.socket(zmq.DEALER)
            stranger.connect(address)
            stranger.send_multipart(frames)
            assert client.status()["node"] == "core"
            stranger.close(linger=1000)
        context.term()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda text: text.replace("listen", "lisen"), "did you mean 'listen'"),
        (
            lambda text: 'name = "core"\nlisten = "tcp://0.0.0.0:5555"\ndata = "d"',
            "is not an address of this machine alone",
        ),
        (lambda text: "not toml", "line 1"),
    ],
)
def test_a_wrong_configuration_ends_with_a_sentence(nodes, change, says):
    path = nodes.config("core")
    text = path.read_text()
    path.write_text(change(text))
    ended = run_to_end("node", str(path))
    assert ended.returncode != 0
    assert says in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_taken_port_or_folder_ends_with_a_sentence(nodes):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        path = nodes.config("core")
        path.write_text(path.read_text().replace(nodes.addresses["core"], f"tcp://127.0.0.1:{port}"))
        ended = run_to_end("node", str(path))
    assert ended.returncode != 0
    assert "Address already in use" in ended.stderr
    assert "Traceback" not in ended.stderr
    nodes.start("edge-1")
    second = nodes.config("edge-2")
    second.write_text(second.read_text().replace('data = "edge-2.data"', 'data = "edge-1.data"'))
    ended = run_to_end("node", str(second))
    assert ended.returncode != 0
    assert "in use by another" in ended.stderr
