"""Jobs that raise: a fragment's own ends that fragment, any other ends the node, and says so."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from medusa.nodes.reports import FragmentFailed
from medusa.runtime.engine_host.host import EngineHost
from medusa.runtime.machine.clock import SystemClock
from medusa.runtime.machine.worker_thread import WorkerThread
from medusa.runtime.node.graph_parser import GraphParser
from medusa.sim.world.disk import Disk
from medusa.wire.outbox import Parse, Persist
from tests.runtime.engine_by_hand import Desk, desk, passing, rows, small

__all__ = ["desk", "small"]  # fixtures

DEADLINE_S = 60.0
BROKEN_NODE = """
import sys
from medusa.cli.main import main
from medusa.runtime.engine_host.host_disk import HostDisk

def write(self, *effect):
    raise ZeroDivisionError("planted")

HostDisk.write = write
sys.argv = ["medusa", "node", sys.argv[1]]
main()
"""


def test_a_thread_whose_job_raises_says_why_and_does_nothing_more() -> None:
    told: list[BaseException] = []
    done: list[str] = []
    worker = WorkerThread("test", failed=told.append)
    for job in (lambda: done.append("before"), lambda: 1 // 0, lambda: done.append("after")):
        worker.give(job)
    assert worker.stop(DEADLINE_S)
    assert (done, [type(each) for each in told]) == (["before"], [ZeroDivisionError])


@pytest.mark.parametrize("thread", ["engine", "disk", "beside"])
def test_a_host_of_which_a_thread_has_failed_refuses_to_go_on(thread: str) -> None:
    woken = threading.Event()
    host = EngineHost(Disk("d"), SystemClock(), wake=woken.set)
    give: dict[str, Callable[[Callable[[], object]], None]] = {
        "engine": host._give,
        "disk": host._disk.give,
        "beside": lambda job: host._beside.give(job),
    }
    give[thread](lambda: 1 // 0)
    assert woken.wait(DEADLINE_S)
    for ask in (host.finished, lambda: host.stop(DEADLINE_S)):
        with pytest.raises(RuntimeError, match="has failed: ZeroDivisionError") as caught:
            ask()
        assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_a_parser_whose_thread_has_failed_refuses_to_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    woken = threading.Event()
    parser = GraphParser(wake=woken.set)

    def broken(effect: Parse) -> None:
        raise SystemExit(3)

    monkeypatch.setattr(parser, "_parse", broken)
    parser.parse(Parse(token=1, nbytes=0, read=lambda: None))
    assert woken.wait(DEADLINE_S)
    with pytest.raises(RuntimeError, match="the thread that reads graphs has failed"):
        parser.finished()


def test_a_job_of_a_fragment_that_raises_ends_that_fragment_alone(desk: Desk) -> None:
    for name in ("broken", "light"):
        desk.open(passing(name))
    running = desk.host._running["broken"]
    monkey = pytest.MonkeyPatch()
    monkey.setattr(desk.host, "_persist", lambda effect: 1 // 0)
    desk.host.persist(Persist(fragment="broken", token=1, files={}, keep=()))
    desk.work()
    monkey.undo()
    desk.feed("broken", rows(1))
    desk.feed("light", rows(2))
    desk.work()
    [failed] = desk.of("broken")
    assert isinstance(failed, FragmentFailed)
    assert failed.why.startswith("ZeroDivisionError")
    assert running.failed
    assert len(desk.rows("light")) == 2


def test_a_node_of_which_a_thread_fails_ends_with_its_traceback(tmp_path: Path) -> None:
    config = tmp_path / "n.toml"
    config.write_text(f'name = "n"\nlisten = "ipc://{tmp_path}/n"\ndata = "n.data"\n')
    ended = subprocess.run(
        [sys.executable, "-c", BROKEN_NODE, str(config)],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert ended.returncode not in (0, None)
    assert "RuntimeError: a thread of this node has failed: ZeroDivisionError: planted" in ended.stderr
    assert "in write" in ended.stderr, "where it was raised"
