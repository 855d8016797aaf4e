"""``medusa demo netmon`` as a user runs it: three processes, the check, and nothing left behind."""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from medusa.apps.workloads import netmon

pytestmark = pytest.mark.system

COMMAND = [sys.executable, "-m", "medusa.cli.main", "demo", "netmon"]
DEADLINE_S = 120


def demo(tmp_path: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [*COMMAND, "--speed", "0", "--report", str(tmp_path / "report.html"), *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)


def test_the_published_figures(tmp_path: Path) -> None:
    done = demo(tmp_path)
    assert done.returncode == 0, done.stderr
    assert (
        "17 windows, 33,531 groups, 144 heavy, 108 wide, 59 both with 12 sources, 53 clusters" in done.stdout
    )
    assert "check by DuckDB: equal" in done.stdout
    assert re.search(r"107,251 flows .* flows/s, 0 late", done.stdout)
    assert re.search(r"p50 [\d.]+ ms, p99 [\d.]+ ms \(85 results of windows\)", done.stdout)
    page = (tmp_path / "report.html").read_text()
    assert page.count("<svg") == 5  # the query and four plots
    assert not re.search(r"""(src|href)=["']?https?://""", page)
    assert "147.32.84.59" in page


def test_one_altered_row_prints_not_equal(tmp_path: Path) -> None:
    trace = netmon.load_trace()
    pq.write_table(trace, tmp_path / "original.parquet")
    sources = trace["src"].to_pylist()
    sources[50_000] = "203.0.113.9"
    altered = trace.set_column(trace.column_names.index("src"), "src", pa.array(sources))
    pq.write_table(altered, tmp_path / "altered.parquet")
    files = ("--trace", str(tmp_path / "altered.parquet"), "--check", str(tmp_path / "original.parquet"))
    done = demo(tmp_path, *files)
    assert done.returncode == 1, done.stderr
    assert "check by DuckDB: not equal" in done.stdout
    assert "not equal, e.g. (" in done.stdout


class Running:
    """A demonstration under way, slowed down so that it is still replaying when we look."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        command = [*COMMAND, "--speed", "20", "--report", str(folder / "report.html")]
        self.process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            env={**os.environ, "TMPDIR": str(folder)},
        )

    def read_until(self, pattern: str) -> None:
        """Lines up to one that matches."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if re.search(pattern, line):
                return
        raise AssertionError(f"the demonstration ended without a line like {pattern!r}")

    def nodes(self) -> list[int]:
        """Its node processes: those whose command line names their configuration in our folder."""
        return [pid for pid, line in command_lines() if str(self.folder) in line and "\0node\0" in line]


def command_lines() -> Iterator[tuple[int, str]]:
    """Of all processes; dead ones have none."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            yield int(process.name), (process / "cmdline").read_text()


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    started = Running(tmp_path)
    try:
        yield started
    finally:
        for pid in [started.process.pid, *started.nodes()]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        started.process.communicate()


REPLAYING = r"[1-9][\d,]* of 107,251 flows"


@pytest.mark.parametrize(
    ("how", "moment", "nodes"),
    [
        (signal.SIGINT, "data: CTU-13", None),
        (signal.SIGINT, "node core is process", 3),
        (signal.SIGINT, REPLAYING, 3),
        (signal.SIGTERM, REPLAYING, 3),
    ],
)
def test_an_interruption_leaves_no_process(
    running: Running, how: signal.Signals, moment: str, nodes: int | None
) -> None:
    running.read_until(moment)
    assert nodes is None or len(running.nodes()) == nodes
    os.killpg(running.process.pid, how)
    assert running.process.wait(DEADLINE_S) == 130
    assert running.nodes() == []
    assert list(running.folder.glob("medusa-netmon-*")) == []


def test_nodes_end_when_the_demonstration_is_killed(running: Running) -> None:
    running.read_until(REPLAYING)
    ends = [os.pidfd_open(pid) for pid in running.nodes()]
    assert len(ends) == 3
    running.process.kill()
    for end in ends:
        assert select.select([end], [], [], DEADLINE_S)[0], "a node outlives the demonstration"
        os.close(end)
