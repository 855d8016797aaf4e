"""Ctrl-C ends ``medusa node``: in order, in a line, with all rows that were acknowledged."""

from __future__ import annotations

import re
import signal
from contextlib import suppress
from pathlib import Path
from subprocess import TimeoutExpired

import pytest

import medusa as md
from tests.system.nodes import DEADLINE_S, TIMEOUT, Nodes

pytestmark = pytest.mark.system


UNTIL_IT_ENDS = 0


@pytest.mark.parametrize("presses", [1, 3, UNTIL_IT_ENDS])
def test_a_node_that_is_interrupted(presses: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    # A socket's path is short; pytest's own folders may not be.
    folder: Path = tmp_path_factory.mktemp("i")
    nodes = Nodes(folder, ["a"], limits='checkpoint_every = "100ms"')
    q = md.Query("q")
    q.sink("out", q.source("rows", {"ts": "int64", "v": "int64"}, time="ts", unit="us").filter("v > 0"))
    values = list(range(1, 101))
    try:
        nodes.start("a")
        with md.connect(nodes.addresses["a"], timeout=TIMEOUT) as fed:
            fed.deploy(q)
            fed.publish("q.rows", {"ts": values, "v": values})
            fed.flush()
            process = nodes.processes.pop("a")
            with process.stdout:
                if presses == UNTIL_IT_ENDS:
                    while process.poll() is None:
                        process.send_signal(signal.SIGINT)
                        with suppress(TimeoutExpired):
                            process.wait(0.001)
                else:
                    for _ in range(presses):
                        process.send_signal(signal.SIGINT)
                assert process.wait(DEADLINE_S) == 0
        log = nodes.log("a")
        assert re.search(r"info ended fragments=1 rows_in=100\b[^\n]*\n$", log), log
        assert "Traceback" not in log
        nodes.start("a")
        found: list[int] = []
        with md.connect(nodes.addresses["a"], timeout=TIMEOUT) as fed:
            stream = fed.subscribe("q.out", from_="oldest")
            while len(found) < len(values):
                found += stream.next("30s").batch.column("v").to_pylist()
        assert found == values
        assert nodes.stop("a") == 0
    finally:
        nodes.close()
