"""A publisher with a name and its nodes, killed again and again: every row counts exactly once."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

import medusa as md
from tests.system.nodes import PATIENT_READERS, ForkedNodes, Nursery, ordered, until

pytestmark = pytest.mark.system

ROWS = 30_000
LIMITS = f'checkpoint_every = "50ms"\n{PATIENT_READERS}'
KILLED = ("publisher", "both", "node", "move", "publisher")


def query() -> md.Query:
    q = md.Query("q")
    rows = q.source("rows", {"ts": "int64", "v": "int64"}, time="ts", unit="us")
    q.sink("out", rows.window("100us").aggregate(n=md.count(), s=md.sum("v")))
    return q


class Program:
    """The publisher in a process of its own."""

    def __init__(self, nursery: Nursery, address: str, folder: Path) -> None:
        self._nursery = nursery
        self._folder = folder
        self._order = {
            "program": "tests.system.named_publisher",
            "arguments": [address, str(ROWS), str(folder / "hurry")],
            "log": str(folder / "log"),
        }
        self._pid = self._lives = 0

    def start(self) -> None:
        self._lives += 1
        self._pid = self._nursery.ask(**self._order, out=str(self._folder / f"{self._lives}.out"))

    def kill(self) -> None:
        os.kill(self._pid, signal.SIGKILL)
        assert self.wait() == -signal.SIGKILL

    def wait(self) -> int:
        return self._nursery.ask(wait=self._pid)

    def begins(self) -> list[int]:
        """The row with which each life began."""
        lives = (self._folder / f"{life + 1}.out" for life in range(self._lives))
        return [int(path.read_text().split()[1]) for path in lives]


@pytest.fixture
def nodes(tmp_path_factory):
    made = ForkedNodes(tmp_path_factory.mktemp("n"), ["m", "n"], limits=LIMITS)
    yield made
    made.close()


def test_a_publisher_that_goes_on_where_the_node_says_has_each_row_in_the_answer_once(nodes, tmp_path):
    nodes.start()
    program = Program(nodes.nursery, nodes.addresses["m"], tmp_path)
    with md.connect(nodes.addresses["m"], timeout="30s") as fed:
        fed.deploy(query(), {"n": ["rows"]})
        trains = fed.subscribe("q.out", from_="oldest")

        where = "n"

        def named() -> dict[str, Any]:
            with md.connect(nodes.addresses[where], timeout="30s") as node:
                found = [each for one in node.status()["fragments"] for each in one["publishers"]]
            return found[0] if found else {"durable_row": 0}

        program.start()
        for victim in KILLED:
            enough = named()["durable_row"] + 200
            until(lambda enough=enough: named()["durable_row"] > enough, what="more rows are durable")
            if victim in ("both", "node"):
                nodes.kill(where)
            if victim in ("both", "publisher"):
                program.kill()
                program.start()
            if victim in ("both", "node"):
                nodes.start(where)
            if victim == "move":
                ordered(lambda: fed.move("q/rows", to="m"))
                where = "m"
        (tmp_path / "hurry").touch()
        table = trains.table(timeout="60s")
        assert program.wait() == 0
        begins = program.begins()
        assert (begins[0], begins) == (0, sorted(set(begins)))
        last = named()
        assert (last["name"], last["durable_row"], last["finished"]) == ("numbers", ROWS, True)
        fed.unpublish("q.rows", durable="numbers")
    want = [{"n": 100, "s": sum(range(at, at + 100))} for at in range(0, ROWS, 100)]
    assert table.select(["n", "s"]).to_pylist() == want
