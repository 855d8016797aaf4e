"""A reader that stops: what each process then takes in memory, who is slowed, and who is not."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pyarrow as pa
import pytest

import medusa as md
from tests.system.nodes import Nodes, first_line, until
from tests.system.stalled_ends import SCHEMA, TRAIN_ROWS

pytestmark = pytest.mark.system

MIB = 1 << 20
WINDOW, RETENTION = 8 * MIB, 64 * MIB
REST = 20_000_000
"""What else stays taken: under 10 MB at rest, up to 17 MB was seen where a machine has
too much to do, when what is kept shrinks and grows again before all stands still."""
ALLOWED = WINDOW + RETENTION + REST
PACED, ROWS = 20_480, 20_480 + 250_112
COST = 1012 * TRAIN_ROWS
"""Of a train, about: what a bound may be overrun by."""


def query() -> md.Query:
    q = md.Query("chain")
    kept = q.source("rows", SCHEMA, time=None).filter("n >= 0", name="kept")
    q.sink("out", kept.filter("n >= 0", name="more"))
    return q


def memory(pid: int) -> tuple[int, int]:
    """Bytes resident now, and at most so far."""
    lines = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    now, most = (int(lines[name].split()[0]) * 1024 for name in ("VmRSS", "VmHWM"))
    return now, most


def end(*arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.system.stalled_ends", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True)


def go(process: subprocess.Popen[str]) -> None:
    process.stdin.write("\n")
    process.stdin.flush()


def status(address: str) -> dict:
    with md.connect(address, timeout="30s") as fed:
        return fed.status()


@pytest.fixture
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("n")  # A socket's path is short; pytest's own folders may not be.


def test_a_stalled_reader_slows_the_source_and_each_process_stays_within_its_bounds(folder):
    """Publisher, node, node, subscriber; the subscriber stops reading.

    What the same processes take when everything is read is measured first: memory of the interpreter,
    the allocators and the socket library that stays taken, which grows with no bound of ours.
    """
    nodes = Nodes(folder, ["a", "b"], limits='subscriber_timeout = "10min"\ncheckpoint_every = "100ms"')
    ends: list[subprocess.Popen[str]] = []
    try:
        nodes.start()
        with md.connect(nodes.addresses["b"], timeout="30s") as fed:
            fed.deploy(query(), at={"a": ["rows", "kept"], "b": ["more"]})
        publisher = end("publish", nodes.addresses["a"], "chain.rows", PACED, ROWS)
        reader = end("read", nodes.addresses["b"], "chain.out", PACED)
        ends = [publisher, reader]
        pids = {name: nodes.processes[name].pid for name in nodes.names}
        pids |= {"publisher": publisher.pid, "reader": reader.pid}
        assert [first_line(each) for each in ends] == ["begun", "begun"]
        before = {name: memory(pid)[0] for name, pid in pids.items()}
        for each in ends:
            go(each)
        assert [first_line(each) for each in ends] == ["paced", "paced"]
        read = {name: memory(pid)[1] - before[name] for name, pid in pids.items()}

        go(publisher)
        said = first_line(publisher)
        assert said.startswith("full "), said

        def kept() -> dict[str, int]:
            return {name: status(nodes.addresses[name])["kept_bytes"] for name in nodes.names}

        until(lambda: min(kept().values()) >= RETENTION - COST, what="both nodes are full")
        assert max(kept().values()) <= RETENTION + COST
        stalled = {name: memory(pid)[1] - before[name] for name, pid in pids.items()}
        print({name: (read[name] // MIB, stalled[name] // MIB) for name in pids})
        for name in pids:
            assert stalled[name] <= read[name] + ALLOWED, (name, read, stalled)
        # Publisher and nodes keep their bound, everybody else a window, and nobody took more than that.
        assert int(said.split()[1]) - PACED <= 3 * (RETENTION + WINDOW + COST) // 1012

        go(reader)
        assert first_line(publisher) == f"done {ROWS}"
        assert first_line(reader) == f"read {ROWS}"
    finally:
        nodes.close()
        for each in ends:
            each.kill()
            each.communicate()


def test_a_subscriber_that_stops_is_cut_off_and_another_goes_on(tmp_path_factory):
    """Who reads is cut off, too, where the machine is so busy that it doesn't come to it for so long."""
    timeouts = iter(("500ms", "3s", "15s"))
    while not one_is_cut_off(tmp_path_factory.mktemp("n"), next(timeouts)):
        pass


def one_is_cut_off(folder, timeout) -> bool:
    """Whether the other one goes on."""
    nodes = Nodes(folder, ["a"], limits=f'subscriber_timeout = "{timeout}"\nretention = "4 MiB"')
    rows = 30_000
    text = pa.array([b"x" * 1000] * 1000, pa.binary())
    try:
        nodes.start()
        with md.connect(nodes.addresses["a"], timeout="60s") as fed:
            fed.deploy(query())
            stops = fed.subscribe("chain.out")
            other = md.connect(nodes.addresses["a"], timeout="60s")
            goes_on = other.subscribe("chain.out")

            def publish() -> None:
                with md.connect(nodes.addresses["a"], timeout="60s") as source:
                    for at in range(0, rows, 1000):
                        numbers = pa.array(range(at, at + 1000))
                        source.publish("chain.rows", pa.record_batch({"n": numbers, "text": text}))
                    source.finish("chain.rows")

            thread = threading.Thread(target=publish)
            thread.start()
            try:
                table = goes_on.table("60s")
            except md.LinkError as error:
                if error.code != "E_CUT_OFF":
                    raise
                return False
            finally:
                thread.join()
            assert table["n"].to_pylist() == list(range(rows))
            assert goes_on.lost_rows == 0
            with pytest.raises(md.LinkError) as caught:
                stops.table("60s")
            assert caught.value.code == "E_CUT_OFF"
            assert 0 < stops.next_row < rows
            other.close()
            return True
    finally:
        nodes.close()
