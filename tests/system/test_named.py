"""A reader with a name and its node, both killed again and again: every row is stored exactly once."""

from __future__ import annotations

import os
import signal
import sqlite3
import threading
from pathlib import Path

import pytest

import medusa as md
from tests.system.nodes import DEADLINE_S, ForkedNodes, Nursery, until

pytestmark = pytest.mark.system

KILLED = ("reader", "both", "node")


def query() -> md.Query:
    q = md.Query("q")
    q.sink("out", q.source("rows", {"ts": "int64", "v": "int64"}, time="ts", unit="us").filter("v >= 0"))
    return q


class Reader:
    """The program in a process of its own."""

    def __init__(self, nursery: Nursery, address: str, folder: Path) -> None:
        self._nursery = nursery
        self._path = folder / "results.db"
        self._order = {
            "program": "tests.system.named_reader",
            "arguments": [address, str(self._path)],
            "out": str(folder / "out"),
            "log": str(folder / "log"),
        }
        self._pid = 0

    def start(self) -> None:
        self._pid = self._nursery.ask(**self._order)

    def kill(self) -> None:
        os.kill(self._pid, signal.SIGKILL)
        assert self.wait() == -signal.SIGKILL

    def wait(self) -> int:
        return self._nursery.ask(wait=self._pid)

    def rows(self, what: str = "count(*)") -> list[tuple[int, ...]]:
        if not self._path.exists():
            return [(0,)]
        store = sqlite3.connect(self._path, timeout=DEADLINE_S)
        try:
            return store.execute(f"select {what} from results").fetchall()
        except sqlite3.OperationalError:  # No table yet.
            return [(0,)]
        finally:
            store.close()

    def goes_on(self) -> None:
        [(before,)] = self.rows()
        until(lambda: self.rows()[0][0] > before, what="more rows are stored")


@pytest.fixture
def nodes(tmp_path_factory):
    made = ForkedNodes(tmp_path_factory.mktemp("n"), ["n"], limits='checkpoint_every = "50ms"')
    yield made
    made.close()


def test_a_reader_that_stores_its_position_with_its_rows_has_each_once(nodes, tmp_path):
    nodes.start("n")
    address = nodes.addresses["n"]
    reader = Reader(nodes.nursery, address, tmp_path)
    enough = threading.Event()
    total = 0

    def publish() -> None:
        nonlocal total
        while not enough.wait(0.02):
            values = list(range(total, total + 50))
            fed.publish("q.rows", {"ts": values, "v": values})
            total += len(values)

    with md.connect(address, timeout="30s") as fed:
        fed.deploy(query())
        feeder = threading.Thread(target=publish)
        feeder.start()
        try:
            reader.start()
            for victim in KILLED:
                reader.goes_on()
                if victim != "reader":
                    nodes.kill("n")
                if victim != "node":
                    reader.kill()
                    reader.start()
                if victim != "reader":
                    nodes.start("n")
            reader.goes_on()
        finally:
            enough.set()
            feeder.join(DEADLINE_S)
        fed.finish("q.rows")
        fed.flush()
        assert reader.wait() == 0

        def known() -> tuple[int, bool]:
            [output] = fed.status()["fragments"][0]["outputs"]
            [named] = output["named"]
            return named["acknowledged_row"], named["connected"]

        until(lambda: known() == (total, False), what=lambda: f"{total} rows and no reader: {known()}")
        fed.unsubscribe("q.out", durable="results")
        assert fed.status()["fragments"][0]["outputs"][0]["named"] == []
    assert reader.rows("number, value") == [(number, number) for number in range(total)]
