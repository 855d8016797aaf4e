"""Processes on hosts of their own, the line between two of them cut: who hears both goes on, exactly."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import medusa as md
from medusa.apps.workloads.network.net import Net
from tests.system.network import needs_network
from tests.system.nodes import DEADLINE_S, ordered, until
from tests.system.test_partitions import HOSTS, Keyed

pytestmark = pytest.mark.system

SCHEMA = {"ts": "timestamp[us, UTC]", "k": "utf8", "v": "int64"}
PIECES, PIECE_US = 200, 50_000
AT = {"a": ["left", "of_left"], "b": ["right", "of_right"], "c": ["both", "per_k", "out"]}


def query() -> md.Query:
    """With an X that no busy machine uses up: what is looked for is begun after 3 s of it."""
    q = md.Query("dpc")
    left = q.source("left", SCHEMA, time="ts").filter("v >= 0", name="of_left")
    right = q.source("right", SCHEMA, time="ts").filter("v >= 0", name="of_right")
    per_k = left.sunion(right, bucket="100ms", name="both").window("1s").group_by("k")
    q.sink("out", per_k.aggregate(n=md.count(), s=md.sum("v"), name="per_k"), delay="30s")
    return q


def piece(source: str, place: int) -> pa.Table:
    at = [place * PIECE_US, place * PIECE_US + 1]
    base = 0 if source == "left" else 10_000
    return pa.table(
        {
            "ts": pa.array(at, pa.timestamp("us", tz="UTC")),
            "k": ["a", "b"],
            "v": pa.array([base + place, base - place if base else place * 2], pa.int64()),
        }
    )


@pytest.fixture
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keyed]:
    needs_network()
    with Net(HOSTS, seed=3) as net:
        made = Keyed(net, tmp_path_factory.mktemp("n"))
        try:
            yield made
        finally:
            made.close()


def connected(nodes: Keyed, client: str, *names: str) -> md.Federation:
    """In the thread of its host."""
    return md.connect(
        [nodes.address(name) for name in names],
        key=nodes.folder / f"{client}.key",
        server_key=[nodes.keys[name].public for name in names],
        timeout=f"{DEADLINE_S:.0f}s",
    )


class Reading:
    """What comes of the answers, on both lanes, in a thread."""

    def __init__(self, nodes: Keyed) -> None:
        self._nodes = nodes
        self.rows: dict[str, list[dict[str, Any]]] = {"stable": [], "tentative": []}
        self._failed: list[BaseException] = []
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        try:
            # It calls the next owner later, from its own host still.
            with self._nodes.net.on("reader"), connected(self._nodes, "reader", "a", "c") as fed:
                for train in fed.subscribe("dpc.out", from_="oldest", tentative=True):
                    self.rows[train.kind.value] += train.batch.to_pylist()
        except BaseException as error:
            self._failed.append(error)

    def some(self, more_than: int = 0) -> bool:
        """Whether so many stable rows have come."""
        assert self._failed == []
        return len(self.rows["stable"]) > more_than

    def ends(self) -> None:
        self._thread.join(DEADLINE_S)
        assert self._failed == []
        assert not self._thread.is_alive()


def owner(fed: md.Federation) -> str:
    fragments = fed.status()["queries"]["dpc"]["configuration"]["fragments"]
    return str(fragments["dpc/both"]["owner"])


def followed(nodes: Keyed) -> bool:
    with nodes.connect("pub", "c") as fed:
        parts = [each for each in fed.status()["fragments"] if each["fragment"] == "dpc/both"]
    # Of one that was just moved nobody may stand by yet.
    held = [part.get("replicas", {}).get("secondaries", {}).get("a", {}) for part in parts]
    return [each.get("state") for each in held] == ["following"]


def at_home(nodes: Keyed, fed: md.Federation) -> bool:
    """Whether c has it, and a follows; if it is elsewhere it is moved there."""
    if owner(fed) != "c":
        ordered(lambda: fed.move("dpc/both", to="c"))
    return owner(fed) == "c" and followed(nodes)


@pytest.mark.parametrize("way", [None, ("b", "c"), ("c", "b")], ids=["both", "to the owner", "from it"])
def test_the_line_to_a_sender_is_cut_and_a_secondary_goes_on(
    nodes: Keyed, way: tuple[str, str] | None
) -> None:
    net, folder = nodes.net, Path(nodes.folder)
    ways = net.between("b", "c") if way is None else (way,)
    with nodes.connect("pub", "a") as left, nodes.connect("pub", "b") as right:
        left.deploy(query(), at=AT, standby={"c": ["a"]}, witness=["b"])
        reading = Reading(nodes)
        until(lambda: followed(nodes), what="a follows", every_s=0.2)

        def publish(first: int, end: int) -> None:
            for place in range(first, end):
                left.publish("dpc.left", piece("left", place))
                right.publish("dpc.right", piece("right", place))
            left.flush()
            right.flush()

        publish(0, PIECES // 2)
        until(reading.some, what="answers come")
        # On a busy machine c may have been taken for silent, and a has it.
        until(lambda: at_home(nodes, left), what="c has it, and a follows", every_s=0.2)
        net.cut(*ways)
        publish(PIECES // 2, PIECES - 20)
        until(lambda: owner(left) == "a", what="a has it", every_s=0.2)
        before = len(reading.rows["stable"])
        publish(PIECES - 20, PIECES)
        until(lambda: reading.some(before), what="answers come while the line is cut")
        net.heal(*ways)
        left.finish("dpc.left")
        right.finish("dpc.right")
        reading.ends()
        assert owner(left) == "a", "it stays once the line is back"
    tables = {name: pa.concat_tables([piece(name, n) for n in range(PIECES)]) for name in ("left", "right")}
    want = md.collect(query(), **tables)["out"].to_pylist()
    assert reading.rows["stable"] == want
    assert reading.rows["tentative"] == []
    assert "fragment is handed over" in (folder / "c.log").read_text()
