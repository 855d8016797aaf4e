"""A reader that stops, and a stream that spills: nobody is slowed, memory stays, and nothing is lost."""

from __future__ import annotations

import subprocess

import pyarrow as pa
import pytest

import medusa as md
from medusa.wire import limits
from tests.system.nodes import ForkedNodes, Nodes, first_line, until
from tests.system.test_stalled_reader import MIB, REST, WINDOW, end, folder, go, memory, query, status

__all__ = ["folder"]

pytestmark = pytest.mark.system

RETENTION = 4 * MIB
ALLOWED = WINDOW + RETENTION + REST
ROWS_MIB = 60
PACED = 5_120
ROWS = PACED + ROWS_MIB * 1024
LIMITS = f"""subscriber_timeout = "10min"
checkpoint_every = "100ms"
[streams."*"]
retention = {RETENTION}
at_limit = "spill"
"""


def outputs(address: str) -> dict:
    (fragment,) = status(address)["fragments"]
    (output,) = fragment["outputs"]
    return output


def test_a_stalled_reader_slows_nobody_and_then_gets_all(folder):
    nodes = Nodes(folder, ["a"], limits=LIMITS)
    ends: list[subprocess.Popen[str]] = []
    try:
        nodes.start()
        address, pid = nodes.addresses["a"], nodes.processes["a"].pid
        with md.connect(address, timeout="30s") as fed:
            fed.deploy(query())
        publisher = end("publish", address, "chain.rows", PACED, ROWS)
        reader = end("read", address, "chain.out", PACED)
        ends = [publisher, reader]
        assert [first_line(each) for each in ends] == ["begun", "begun"]
        for each in ends:
            go(each)
        assert [first_line(each) for each in ends] == ["paced", "paced"]
        before = memory(pid)[1]

        go(publisher)
        assert first_line(publisher) == f"done {ROWS}"
        grown = memory(pid)[1] - before
        output = outputs(address)
        assert output["kept_bytes"] >= (ROWS_MIB - WINDOW // MIB) * MIB
        assert output["kept_bytes"] - output["spilled_bytes"] <= RETENTION
        assert grown <= ALLOWED

        go(reader)
        assert first_line(reader) == f"read {ROWS}"
        grown_reading = memory(pid)[1] - before
        print(f"grown by {grown / MIB:.1f} MiB, and {grown_reading / MIB:.1f} when it was read")
        assert grown_reading <= ALLOWED
    finally:
        nodes.close()
        for each in ends:
            each.kill()
            each.communicate()


def test_what_is_spilled_outlives_the_node(folder):
    nodes = ForkedNodes(folder, ["a", "b"], limits=LIMITS)
    address, rows = nodes.addresses["a"], ROWS_MIB * 1024
    text = pa.array([b"x" * 1000] * 1024, pa.binary())
    try:
        nodes.start()
        with md.connect(nodes.addresses["b"], timeout="30s") as fed:
            fed.deploy(query(), at={"a": ["rows", "kept"], "b": ["more"]})
        nodes.kill("b")
        with md.connect(address, timeout="60s") as fed:
            for at in range(0, rows, 1024):
                fed.publish(
                    "chain.rows", pa.record_batch({"n": pa.array(range(at, at + 1024)), "text": text})
                )
                if at == rows // 2:
                    until(lambda: outputs(address)["spilled_bytes"] >= ROWS_MIB // 4 * MIB, what="it spills")
                    nodes.kill("a")
                    nodes.start("a")
            fed.finish("chain.rows")
            fed.flush("60s")
        assert outputs(address)["spilled_bytes"] >= (ROWS_MIB - 2 * RETENTION // MIB) * MIB
        nodes.kill("a")
        nodes.start("b")
        with (
            md.connect(nodes.addresses["b"], timeout="60s") as fed,
            fed.subscribe("chain.out", from_="oldest") as trains,
        ):
            nodes.start("a")
            came = 0
            for train in trains:
                assert train.batch["n"].to_pylist() == list(range(came, came + len(train)))
                came += len(train)
            assert (came, trains.lost_rows) == (rows, 0)
        until(lambda: outputs(address)["kept_bytes"] <= limits.ENTRY_BYTES, what="only the end is kept")
        store = nodes.data("a")
        until(lambda: not list(store.glob("*-log-*")), what="no segment is left")
    finally:
        nodes.close()
