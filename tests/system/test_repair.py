"""``medusa repair`` and real node processes: catalogs are destroyed between ``kill -9`` and start."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import medusa as md
from medusa.cli.main import main
from medusa.nodes.catalog.catalog import CATALOG
from medusa.runtime.engine_host.group_names import GroupName
from tests.system.nodes import ForkedNodes, ordered, until

pytestmark = pytest.mark.system


LIMITS = 'checkpoint_every = "50ms"\nsubscriber_timeout = "1s"'


@pytest.fixture
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkedNodes]:
    made = ForkedNodes(tmp_path_factory.mktemp("r"), ["a"], limits=LIMITS)
    yield made
    made.close()


def query(name: str = "q") -> md.Query:
    """A running sum: a row lost, or taken twice, shows in all that come after it."""
    q = md.Query(name)
    rows = q.source("rows", {"ts": "int64", "v": "int64"}, time="ts", unit="us")
    q.sink("out", rows.running(total=md.sum("v"), name="sums"))
    return q


def rows(first: int, last: int) -> dict[str, list[int]]:
    return {"ts": list(range(first, last)), "v": [1] * (last - first)}


def begin(nodes: ForkedNodes) -> None:
    """Ten rows are in, and durable; then ``kill -9``."""
    nodes.start("a")
    with md.connect(nodes.addresses["a"], timeout="30s") as fed:
        fed.deploy(query())
        fed.publish("q.rows", rows(0, 10))
        fed.flush()
    nodes.kill("a")


def starts(nodes: ForkedNodes) -> int:
    """The exit code of a node that can't start."""
    nodes._launch("a")
    process = nodes.processes.pop("a")
    code = process.wait()
    process.stdout.close()
    return code


def goes_on(nodes: ForkedNodes) -> None:
    """Ten rows more: all twenty sums are there, each once."""
    with md.connect(nodes.addresses["a"], timeout="30s") as fed:
        fed.publish("q.rows", rows(10, 20))
        fed.finish("q.rows")
        assert ordered(lambda: sums(fed), again=["E_CUT_OFF"]) == list(range(1, 21))
        fed.deploy(query("another"))
        assert set(fed.status()["queries"]) == {"q", "another"}
        assert fed.status()["in_doubt"] == {}


def sums(fed: md.Federation) -> list[int]:
    """Read to the end; who doesn't take them for a second, as on a busy machine, is cut off."""
    with fed.subscribe("q.out", from_="oldest") as trains:
        found: list[int] = trains.table("60s")["total"].to_pylist()
    return found


def destroy_catalogs(folder: Path, *, newest_only: bool) -> None:
    """One bit of each copy, the same one: the two are of no help to each other."""
    catalogs = [each for each in map(GroupName.of, os.listdir(folder)) if each.kind == "catalog"]
    newest = max(each.number for each in catalogs)
    for each in catalogs:
        if each.number == newest or not newest_only:
            path = folder / each.name / CATALOG
            data = bytearray(path.read_bytes())
            data[len(data) // 2] ^= 1
            path.write_bytes(data)


def repair(nodes: ForkedNodes, *options: str) -> Result:
    return CliRunner().invoke(main, ["repair", str(nodes.config("a")), *options])


def found(nodes: ForkedNodes, *options: str) -> dict[str, Any]:
    shown = repair(nodes, "--json", *options)
    assert shown.exit_code == 0, shown.output
    answer: dict[str, Any] = json.loads(shown.stdout)
    return answer


def test_without_a_whole_catalog_an_operator_takes_the_fragment_up(nodes: ForkedNodes) -> None:
    begin(nodes)
    destroy_catalogs(nodes.data("a"), newest_only=False)
    assert starts(nodes) == 1
    assert "medusa repair" in nodes.log("a")

    before = sorted(os.listdir(nodes.data("a")))
    [fragment] = found(nodes)["fragments"]
    assert (fragment["name"], fragment["state"], fragment["coordinator"]) == ("q/rows", "checkpoint", "a")
    assert [row for _, _, row in fragment["inputs"]] == [10]
    assert repair(nodes, "--accept").exit_code == 1, "the fragment isn't decided about"
    assert sorted(os.listdir(nodes.data("a"))) == before, "a refused decision changes nothing"

    after = found(nodes, "--take-up", "q/rows", "--accept")
    assert after["accepted"]
    assert [each["decision"] for each in after["fragments"]] == ["adopt"]
    nodes.start("a")
    goes_on(nodes)


def test_after_a_fall_back_queries_are_deployed_once_the_catalog_is_accepted(nodes: ForkedNodes) -> None:
    begin(nodes)
    destroy_catalogs(nodes.data("a"), newest_only=True)
    nodes.start("a")
    with md.connect(nodes.addresses["a"], timeout="30s") as fed:
        until(
            lambda: [each["fragment"] for each in fed.status()["fragments"]] == ["q/rows"],
            what="it is judged",
        )
        assert fed.status()["in_doubt"]["lost_catalog"] > 0
        with pytest.raises(md.LinkError) as refused:
            fed.deploy(query("another"))
        assert refused.value.code == "E_BUSY"
        assert "medusa repair" in refused.value.hint
        shown = CliRunner().invoke(main, ["status", "--node", nodes.addresses["a"]]).stdout
        assert "LOST: catalog" in shown
    running = repair(nodes, "--accept")
    assert running.exit_code == 1
    assert "node 'a' is running" in running.stderr
    assert nodes.stop("a") == 0

    assert found(nodes, "--accept")["accepted"]
    nodes.start("a")
    goes_on(nodes)
