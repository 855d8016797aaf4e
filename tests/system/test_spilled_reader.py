"""A reader that stops, and a stream that spills: nobody is slowed, memory stays, and nothing is lost."""

from __future__ import annotations

import subprocess

import pytest

import medusa as md
from tests.system.nodes import ForkedNodes, Nodes, first_line, until
from tests.system.test_stalled_reader import MIB, WINDOW, end, folder, go, memory, query, status

__all__ = ["folder"]

pytestmark = pytest.mark.system

RETENTION = 4 * MIB
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
        assert grown <= WINDOW + RETENTION + 10_000_000

        go(reader)
        assert first_line(reader) == f"read {ROWS}"
        grown_reading = memory(pid)[1] - before
        print(f"grown by {grown / MIB:.1f} MiB, and {grown_reading / MIB:.1f} when it was read")
        assert grown_reading <= WINDOW + RETENTION + 10_000_000
    finally:
        nodes.close()
        for each in ends:
            each.kill()
            each.communicate()


def test_what_is_spilled_outlives_the_node(folder):
    nodes = ForkedNodes(folder, ["a", "b"], limits=LIMITS)
    ends: list[subprocess.Popen[str]] = []
    try:
        nodes.start()
        address = nodes.addresses["a"]
        with md.connect(nodes.addresses["b"], timeout="30s") as fed:
            fed.deploy(query(), at={"a": ["rows", "kept"], "b": ["more"]})
        nodes.kill("b")
        publisher = end("publish", address, "chain.rows", 0, ROWS)
        ends = [publisher]
        assert first_line(publisher) == "begun"
        go(publisher)
        assert first_line(publisher) == "paced"
        go(publisher)
        until(lambda: outputs(address)["spilled_bytes"] >= ROWS_MIB // 4 * MIB, what="much is spilled")
        nodes.kill("a")
        nodes.start("a")
        assert first_line(publisher) == f"done {ROWS}"
        output = outputs(address)
        assert output["spilled_bytes"] >= (ROWS_MIB - 2 * RETENTION // MIB) * MIB
        nodes.kill("a")
        nodes.start("b")
        reader = end("read", nodes.addresses["b"], "chain.out", ROWS)
        ends.append(reader)
        assert first_line(reader) == "begun"
        nodes.start("a")
        go(reader)
        assert first_line(reader) == "paced"
        go(reader)
        assert first_line(reader) == f"read {ROWS}"
        until(lambda: outputs(address)["kept_bytes"] == 0, what="nothing is kept")
        store = nodes.data("a")
        until(lambda: not list(store.glob("*-log-*")), what="no segment is left")
    finally:
        nodes.close()
        for each in ends:
            each.kill()
            each.communicate()
