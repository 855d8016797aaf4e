"""A node as a process: its metrics over HTTP, and ``medusa top`` on both of its addresses."""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families as parse

import medusa as md
from tests.system.nodes import TIMEOUT, Nodes, run_to_end, until

pytestmark = pytest.mark.system


@pytest.fixture
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    nodes = Nodes(tmp_path_factory.mktemp("m"), ["n"])
    config = nodes.config("n")
    config.write_text(f'metrics = "127.0.0.1:0"\n{config.read_text()}')
    try:
        nodes.start()
        yield nodes
    finally:
        nodes.close()


def sums(url: str) -> dict[tuple[str, str], float]:
    with urllib.request.urlopen(f"{url}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    found = {}
    for family in parse(text):
        for sample in family.samples:
            if not family.name.startswith("medusa_box_"):
                assert sample.labels["node"] == "n", "of the node and its links"
                continue
            assert set(sample.labels) == {"query", "box", "kind", "fragment"}
            found[sample.name, sample.labels["box"]] = sample.value
    return found


def test_a_node_serves_and_top_shows_it(nodes: Nodes) -> None:
    found = re.search(r"metrics at (http://127\.0\.0\.1:\d+)/metrics", nodes.log("n"))
    assert found is not None, nodes.log("n")
    url = found[1]
    assert sums(url) == {}
    q = md.Query("tolls")
    cars = q.source("cars", {"ts": "int64", "k": "int64"}, time="ts", unit="s", slack="1s")
    q.sink("counts", cars.filter("k >= 0", name="some").window("10s").aggregate(n=md.count(), name="sums"))
    with md.connect(nodes.addresses["n"], timeout=TIMEOUT) as fed:
        fed.deploy(q)
        for start in range(0, 1000, 100):
            fed.publish("tolls.cars", {"ts": list(range(start, start + 100)), "k": [0] * 100})
        fed.flush()
        until(lambda: sums(url).get(("medusa_box_rows_in_total", "cars")) == 1000, what="all rows counted")
        until(lambda: sums(url)["medusa_box_rows_out_total", "some"] == 1000, what="and those that passed")
        boxes = {box["box"]: box for box in until(lambda: _boxes(fed), what="rates")}
        assert boxes["sums"]["kind"] == "aggregate"
        assert boxes["cars"]["lag_us"] == 1_000_000
    for address in (nodes.addresses["n"], url):
        shown = run_to_end("top", address, "--once")
        assert shown.returncode == 0, shown.stderr
        assert shown.stdout.startswith(f"tolls at {address}: 4 boxes")
        assert {"cars", "some", "sums", "counts"} <= {
            line.split(" ")[0] for line in shown.stdout.splitlines()
        }
        told = json.loads(run_to_end("top", address, "--json").stdout)["boxes"]
        assert {box["box"]: box["rows_in"] for box in told}["cars"] == 1000
    assert nodes.stop("n") == 0
    gone = run_to_end("top", url, "--once")
    assert gone.returncode == 1
    assert "nobody answers" in gone.stderr


def _boxes(fed: md.Federation) -> list[dict[str, object]]:  # type: ignore[name-defined]
    (fragment,) = fed.status()["fragments"]
    boxes = [{"box": id, **figures} for id, figures in fragment["boxes"].items()]
    return boxes if all("rows_in_per_s" in box for box in boxes) else []


def test_a_node_whose_port_is_taken_says_so_and_ends(nodes: Nodes, tmp_path: Path) -> None:
    found = re.search(r"metrics at http://(127\.0\.0\.1:\d+)/metrics", nodes.log("n"))
    assert found is not None
    config = tmp_path / "other.toml"
    listen = f"ipc://{nodes.folder}/other"
    config.write_text(f'name = "o"\nlisten = "{listen}"\ndata = "{tmp_path}/o"\nmetrics = "{found[1]}"\n')
    done = run_to_end("node", str(config))
    assert done.returncode == 1
    assert f"can't listen on {found[1]}" in done.stderr
