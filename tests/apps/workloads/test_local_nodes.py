"""Node processes for demonstrations: they listen when entered, and are gone when left."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from pathlib import Path

import pytest

import medusa as md
from medusa.apps.workloads import local_nodes
from medusa.apps.workloads.local_nodes import LocalNodes
from medusa.errors import LinkError

pytestmark = pytest.mark.system


def test_nodes_listen_and_end(tmp_path: Path) -> None:
    with LocalNodes(["a", "b"], tmp_path) as nodes:
        assert {name: md_node(address) for name, address in nodes.addresses.items()} == {"a": "a", "b": "b"}
        pids = list(nodes.pids.values())
        assert "listening on tcp://127.0.0.1:" in nodes.log("a")
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def md_node(address: str) -> str:
    with md.connect(address, "60s") as fed:
        return fed.node


def test_a_port_that_was_taken_meanwhile_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        answers = [[f"tcp://127.0.0.1:{taken.getsockname()[1]}"], local_nodes._free_addresses(1)]
        monkeypatch.setattr(local_nodes, "_free_addresses", lambda count: answers.pop(0))
        with LocalNodes(["a"], tmp_path) as nodes:
            assert md_node(nodes.addresses["a"]) == "a"
        assert not answers


def test_a_node_that_can_not_start_says_why(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a file where the data folder should be")
    with pytest.raises(LinkError, match=r"node 'a' ended .* data folder"):
        LocalNodes(["a"], tmp_path).__enter__()


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_an_interruption_while_they_start_leaves_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = []
    honest = subprocess.Popen

    def popen(*arguments: object, **options: object) -> object:
        started.append(honest(*arguments, **options))  # type: ignore[call-overload]
        signal.raise_signal(signal.SIGINT)  # Before anybody has noted the process.
        return started[-1]

    monkeypatch.setattr(subprocess, "Popen", popen)
    with pytest.raises(KeyboardInterrupt):
        LocalNodes(["a", "b"], tmp_path).__enter__()
    assert [gone(process.pid) for process in started] == [True]


def test_interruptions_while_they_stop_leave_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = LocalNodes(["a", "b"], tmp_path).__enter__()
    pids = list(nodes.pids.values())
    # They don't end when asked; each time they are asked, Ctrl-C is pressed.
    monkeypatch.setattr(subprocess.Popen, "terminate", lambda self: signal.raise_signal(signal.SIGINT))
    monkeypatch.setattr(local_nodes, "STOP_TIMEOUT_S", 3600.0)
    with pytest.raises(KeyboardInterrupt):
        nodes.__exit__()
    assert [gone(pid) for pid in pids] == [True, True]
