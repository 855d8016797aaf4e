"""``kill -9`` of a node that keeps nothing: the counts that are missing are those that it says."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np
import pytest

import medusa as md
from tests.system.nodes import TIMEOUT, ForkedNodes, Nodes, until

pytestmark = pytest.mark.system

TRAIN_ROWS = 50
STEP_US = 1_000


@pytest.fixture
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    # A socket's path is short; pytest's own folders may not be.
    folder = tmp_path_factory.mktemp("m")
    made = ForkedNodes(folder, ["edge", "middle", "core"], limits='checkpoint_every = "100ms"')
    text = made.config("middle").read_text()
    made.config("middle").write_text(text.replace('data = "middle.data"', 'store = "memory"'))
    yield made
    made.close()


def query() -> md.Query:
    q = md.Query("q")
    rows = q.source("rows", {"ts": "timestamp", "n": "int64"}, time="ts").filter("n >= 0", name="all")
    counts = rows.window("700ms").aggregate(n=md.count(), name="counts")
    q.sink("out", counts.filter("n > 0", name="some"))
    return q


AT = {"edge": ["rows", "all"], "middle": ["counts"], "core": ["some", "out"]}


class Flow:
    """Rows that never stop, until ``finish``."""

    def __init__(self, fed: md.Federation) -> None:
        self._fed = fed
        self._over = threading.Event()
        self.rows = 0
        self._thread = threading.Thread(target=self._publish)
        self._thread.start()

    def _publish(self) -> None:
        while not self._over.wait(0.005):
            n = np.arange(self.rows, self.rows + TRAIN_ROWS)
            self._fed.publish("q.rows", {"ts": (n * STEP_US).astype("datetime64[us]"), "n": n})
            self.rows += TRAIN_ROWS
        self._fed.finish("q.rows")
        self._fed.flush(TIMEOUT)

    def finish(self) -> None:
        self._over.set()
        self._thread.join()


def test_what_dies_with_it_is_counted(nodes):
    nodes.start()
    with (
        md.connect(nodes.addresses["core"], timeout=TIMEOUT) as core,
        md.connect(nodes.addresses["edge"], timeout=TIMEOUT) as edge,
    ):
        core.deploy(query(), at=AT)
        counts: list[int] = []

        def read() -> None:
            for train in core.subscribe("q.out", from_="oldest"):
                counts.extend(train.batch.column("n").to_pylist())

        reader = threading.Thread(target=read)
        reader.start()
        flow = Flow(edge)
        try:
            until(lambda: len(counts) >= 2, what="windows")
            nodes.kill("middle")
            nodes.start("middle")
            seen = len(counts)
            until(lambda: len(counts) >= seen + 2, what="windows after the last kill")
        finally:
            flow.finish()
        reader.join()
        with md.connect(nodes.addresses["middle"], timeout=TIMEOUT) as middle:
            (status,) = middle.status()["fragments"]
    assert not status["lost_unknown"]
    assert flow.rows - sum(counts) == status["lost_rows"] > 0
    assert not nodes.data("middle").exists()
    assert "rows lost fragment=q/counts" in nodes.log("middle")
