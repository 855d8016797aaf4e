"""The end of a node inside a program: by a bug, a full disk, a fork, Ctrl-C, the end of the program."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import medusa as md
from medusa.runtime.embedded_node import node_thread
from medusa.runtime.keys.key_files import CurveKey, write_key
from tests.runtime.test_client_interrupted import MOMENTS_MIN
from tests.runtime.test_forked import child_until_closed, in_child
from tests.runtime.test_inside import DEADLINE_S, deadline, dies, fields, folder, query, threads, until_taken
from tests.system.nodes import until

__all__ = ["deadline", "folder"]


def test_a_loop_that_dies_is_never_silent(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def program() -> None:
        with md.node(fields(folder)) as node:
            dies(node, monkeypatch)
            assert not node.alive
            assert node.failed is not None
            for call in (node.status, node.connect, lambda: node.address):
                with pytest.raises(md.StateError, match="node 'a' has stopped: ValueError: planted"):
                    call()
            ended.append(node)

    ended: list[md.Node] = []
    with pytest.raises(md.StateError, match="ValueError: planted") as caught:
        program()
    assert isinstance(caught.value.__cause__, ValueError)
    assert "a: the node has stopped" in caplog.text
    ended[0].close()
    assert threads() == set()

    def fails() -> None:
        with md.node(fields(folder)) as node:
            dies(node, monkeypatch)
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine") as own:
        fails()
    assert "ValueError: planted" in own.value.__notes__[0]
    with md.node(fields(folder)) as node:
        assert node.status()["node"] == "a"


def test_a_last_checkpoint_that_cannot_be_written_is_told(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from medusa.runtime.node import assembly
    from medusa.runtime.store import folder_store

    monkeypatch.setattr(assembly, "STOP_TIMEOUT_US", 300_000)
    node = md.node(fields(folder, limits={"checkpoint_every": "10min"})).start()
    fed = node.connect()
    fed.deploy(query())
    fed.publish("q.rows", {"ts": [1], "v": [1]})
    until_taken(node, 1)

    def full(number: int, data: memoryview) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(folder_store, "write_all", full)
    with pytest.raises(md.StateError, match="the last checkpoint could not be written"):
        node.close()
    node.close()
    assert node.failed is not None
    fed.close()
    assert threads() == set()
    monkeypatch.undo()
    with md.node(fields(folder)) as node:
        assert node.status()["fragments"][0]["checkpoint_failures"] == 0


# --- forks, signals, the end of the program -------------------------------------------------------


@pytest.mark.usefixtures("deadline")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_leaves_it_to_its_parent(folder: Path) -> None:
    with md.node(fields(folder)) as node:
        data = folder / "a.data"
        said = data / "node-copy-000000000001"
        until(said.exists, what="what the node says of itself is on disk")
        before = sorted(path.name for path in data.iterdir())

        def child() -> None:
            for call in (node.status, node.connect, node.start, lambda: node.address):
                with pytest.raises(md.StateError):
                    call()
            node.close()
            with pytest.raises(md.StateError, match="is in use by another"):
                md.node(fields(folder) | {"listen": "tcp://127.0.0.1:*"}).start()
            with md.node(fields(folder, "c")) as other:  # A child may have one of its own.
                raise SystemExit(0 if other.status()["node"] == "c" else 1)

        assert in_child(child) == 0
        assert sorted(path.name for path in data.iterdir()) == before
        assert node.status()["node"] == "a"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.parametrize("listen", ["tcp://127.0.0.1:*", "tcp://0.0.0.0:*", "ipc"])
def test_a_child_that_lives_on_takes_no_address_and_no_folder(folder: Path, listen: str) -> None:
    given = fields(folder)
    if listen == "tcp://0.0.0.0:*":
        write_key(folder / "a.key", "node", CurveKey.new())
        given |= {"federation": "f", "keys": {"node": folder / "a.key", "introduce": "tcp://127.0.0.1:*"}}
    if listen != "ipc":
        given["listen"] = listen
    reads, ends = os.pipe()
    with md.node(given) as node:
        address = node.address
        child = child_until_closed(reads, ends)
        assert node.status()["node"] == "a"
    try:
        with md.node(given | {"listen": address}) as node:
            assert node.address == address
    finally:
        os.close(ends)
        os.close(reads)
        assert os.waitpid(child, 0)[1] == 0


def interrupted(call: Any, at: int) -> bool:
    """Do it with KeyboardInterrupt at the so-manieth moment of ``inside``; whether there are so many."""
    moments = itertools.count()

    def profile(frame: Any, event: str, argument: Any) -> None:
        ours = frame.f_code.co_filename == node_thread.__file__
        if event in ("call", "c_return") and ours and next(moments) == at:
            raise KeyboardInterrupt

    sys.setprofile(profile)
    try:
        call()
    except KeyboardInterrupt:
        return True
    finally:
        sys.setprofile(None)
    return False


def gone() -> None:
    for each in threading.enumerate():
        if each.name.startswith(("medusa-node", "medusa-engine", "medusa-disk")):
            each.join(DEADLINE_S)
    assert threads() == set()


@pytest.mark.usefixtures("deadline")
def test_ctrl_c_anywhere_in_start_leaves_nothing(folder: Path) -> None:
    for at in itertools.count():
        made = md.node(fields(folder))
        if not interrupted(made.start, at):
            assert at > MOMENTS_MIN
            made.close()
            return
        gone()


@pytest.mark.usefixtures("deadline")
@pytest.mark.parametrize("call", ["close", "status"])
def test_ctrl_c_anywhere_in_a_call(folder: Path, call: str) -> None:
    """What was interrupted can be closed all the same."""
    for at in itertools.count():
        node = md.node(fields(folder)).start()
        came = interrupted(getattr(node, call), at)
        node.close()
        gone()
        if not came:
            assert at > MOMENTS_MIN
            return


PROGRAM = """
import asyncio, os, signal, sys, threading
import medusa as md

folder, how = sys.argv[1:]
config = {"name": "a", "listen": f"ipc://{folder}/a", "data": f"{folder}/a.data"}
q = md.Query("q")
q.sink("out", q.source("rows", {"ts": "int64", "v": "int64"}, time="ts", unit="us").filter("v > 0"))


def work(node):
    fed = node.connect("30s")
    fed.deploy(q)
    fed.publish("q.rows", {"ts": [1], "v": [1]})
    fed.flush()
    return fed


before = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
if how == "open":
    node = md.node(config).start()
    fed = work(node)
    assert before == {each: signal.getsignal(each) for each in before}
elif how == "interrupt":
    with md.node(config) as node:
        work(node)
        threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
        threading.Event().wait()
else:

    async def program():
        async with md.node(config) as node:
            await asyncio.to_thread(work, node)
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.Event().wait()

    asyncio.run(program())
"""


@pytest.mark.parametrize(
    ("how", "code"), [("open", 0), ("interrupt", -signal.SIGINT), ("asyncio", -signal.SIGINT)]
)
def test_the_end_of_a_program_with_a_node(folder: Path, how: str, code: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(folder), how],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    if how == "open":
        assert done.stderr == ""
    else:
        assert done.stderr.rstrip().endswith("KeyboardInterrupt")
    with md.node(fields(folder)) as node, node.connect("60s") as fed:
        assert fed.subscribe("q.out", from_="oldest").next("30s").batch.to_pylist() == [{"ts": 1, "v": 1}]
