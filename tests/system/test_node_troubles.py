"""What a node process says, and how it ends, where something isn't as it should be."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import medusa as md
from medusa.runtime.keys.key_files import CurveKey, write_key
from tests.system.nodes import TIMEOUT, Forked, ForkedNodes, until

pytestmark = pytest.mark.system


class TroubledNodes(ForkedNodes):
    """Two nodes; ``ill`` says how the disks are."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, ["a", "b"], limits='checkpoint_every = "50ms"')
        self.ill = folder / "ill"
        self.with_end = ""

    def _launch(self, name: str) -> None:
        config, log = self.config(name), self.folder / f"{name}.log"
        order = {
            "program": "tests.system.ailing_node",
            "arguments": [str(config), str(self.ill), self.with_end],
        }
        self.processes[name] = Forked(self.nursery, config, log, **order)

    def falls_ill(self, how: str) -> None:
        """At once: nobody reads half of the word."""
        word = self.ill.with_suffix(".new")
        word.write_text(how)
        word.rename(self.ill)

    def empty(self) -> None:
        """None runs, and none was ever there."""
        for name in list(self.processes):
            self.kill(name)
        for name in self.names:
            subprocess.run(["rm", "-rf", str(self.data(name)), str(self.folder / f"{name}.log")], check=True)

    def ends(self, text: str | bytes) -> tuple[int, str]:
        """How a node with this configuration ends, and what it says."""
        path = self.folder / "other.toml"
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        log = self.folder / "other.log"
        log.write_text("")
        made = Forked(self.nursery, path, log)
        code = made.wait()
        made.stdout.close()
        return code, log.read_text()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TroubledNodes]:
    nodes = TroubledNodes(tmp_path_factory.mktemp("t"))  # A socket's path is short.
    yield nodes
    nodes.close()


@pytest.fixture
def nodes(made: TroubledNodes) -> TroubledNodes:
    made.ill.unlink(missing_ok=True)
    made.with_end = ""
    made.empty()
    return made


PLAIN = 'name = "x"\nlisten = "tcp://127.0.0.1:*"\ndata = "x.data"\n'


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            'name = "x"\nlisten = "tcp://127.0.0.1:*"\n',
            "error: {0}: data is missing\nhint: add a line: data =",
        ),
        (
            PLAIN + "lisen = 3\n",
            "error: {0} line 4: lisen: unknown field 'lisen'\nhint: did you mean 'listen'?",
        ),
        (
            PLAIN + 'limits = {credit = "1"}',
            "error: {0} line 4: limits.credit: '1' is out of range\nhint: allow",
        ),
        (PLAIN + "[limits\n", "error: {0} line 4: "),
        (
            b"name = 1\n# \xff\n",
            "error: {0} line 2: no UTF-8 text: invalid start byte\nhint: save it as UTF-8",
        ),
        (PLAIN.replace("x.data", "/proc/self/x"), "error: the data folder /proc/self/x can't be made: "),
        (PLAIN.replace("127.0.0.1:*", "192.0.2.1:5"), "hint: without keys anyone who reaches a node could"),
    ],
)
def test_a_node_that_cannot_start_says_why_and_ends_with_1(
    nodes: TroubledNodes, text: Any, says: str
) -> None:
    code, said = nodes.ends(text)
    assert code == 1
    assert says.format(nodes.folder / "other.toml") in said
    assert "Traceback" not in said
    assert said.count("\n") <= 2


def test_an_address_that_this_machine_does_not_have(nodes: TroubledNodes) -> None:
    write_key(nodes.folder / "x.key", "node", CurveKey.new())
    text = PLAIN.replace("127.0.0.1:*", "192.0.2.1:5555") + 'federation = "f"\n[keys]\nnode = "x.key"\n'
    code, said = nodes.ends(text)
    assert code == 1
    assert said == (
        "error: can't listen on tcp://192.0.2.1:5555: Cannot assign requested address\n"
        "hint: this machine has no such address: use 127.0.0.1\n"
    )


@pytest.mark.parametrize("path", ["none.toml", "."])
def test_no_configuration_is_a_wrong_command_line(nodes: TroubledNodes, path: str) -> None:
    log = nodes.folder / "none.log"
    log.write_text("")
    made = Forked(nodes.nursery, nodes.folder / path, log)
    assert made.wait() == 2
    made.stdout.close()
    assert f"{nodes.folder / path}" in log.read_text()


# --- while it runs --------------------------------------------------------------------------------


def query() -> md.Query:
    """A running sum, so that a row lost or taken twice shows in all that come after it."""
    q = md.Query("q")
    rows = q.source("rows", {"ts": "int64", "v": "int64"}, time="ts", unit="us")
    q.sink("out", rows.running(total=md.sum("v"), name="sums"))
    return q


def rows(first: int, last: int) -> dict[str, list[int]]:
    return {"ts": list(range(first, last)), "v": [1] * (last - first)}


def sums(fed: md.Federation) -> list[int]:
    fed.finish("q.rows")
    found: list[int] = fed.subscribe("q.out", from_="oldest").table("60s")["total"].to_pylist()
    return found


def troubled(nodes: TroubledNodes, begin: Callable[[], object], end: Callable[[], object], why: str) -> None:
    """It goes on without acknowledging anything, says so, and goes on fully when the trouble is over."""
    nodes.start("a")
    with md.connect(nodes.addresses["a"], timeout=TIMEOUT) as fed:
        fed.deploy(query())
        fed.publish("q.rows", rows(0, 10))
        fed.flush()
        begin()
        fed.publish("q.rows", rows(10, 20))
        until(lambda: why in fed.status()["disk_error"], what="it says so")
        until(lambda: why in fed.status()["fragments"][0]["disk_error"], what="of the fragment too")
        until(lambda: fed.status()["rows_in"] == 20, what="it works")
        with pytest.raises(md.LinkError, match="to hold what was published"):
            fed.flush("200ms")
        failures = fed.status()["fragments"][0]["checkpoint_failures"]
        until(lambda: fed.status()["fragments"][0]["checkpoint_failures"] > failures, what="it tries again")
        end()
        fed.flush()
        until(lambda: not fed.status()["disk_error"], what="it is over")
        nodes.kill("a")
        log = nodes.log("a")
        assert log.count("checkpoint failed") == log.count("checkpoint written again") == 1
        assert why in log
        nodes.start("a")
        assert sums(fed) == list(range(1, 21))


def test_a_disk_that_cannot_sync(nodes: TroubledNodes) -> None:
    troubled(nodes, lambda: nodes.falls_ill("fails"), nodes.ill.unlink, "Input/output error")


def test_a_disk_that_is_full(nodes: TroubledNodes, tmp_path: Path) -> None:
    """A file system of its own, of 512 KiB."""
    nodes.data("a").mkdir(exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(nodes.data("a"))]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("only root can mount; test_stops.py fills the disk another way")
    filler = nodes.data("a") / "filler"

    def fill() -> None:
        with contextlib.suppress(OSError), open(filler, "wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))

    try:
        troubled(nodes, fill, filler.unlink, "No space left on device")
    finally:
        nodes.kill("a")
        subprocess.run(["umount", str(nodes.data("a"))], check=True)


def test_told_to_end_it_ends_in_time_though_the_disk_hangs(nodes: TroubledNodes) -> None:
    nodes.with_end = "at once"
    nodes.start("a")
    with md.connect(nodes.addresses["a"], timeout=TIMEOUT) as fed:
        fed.deploy(query())
        fed.publish("q.rows", rows(0, 10))
        fed.flush()
        nodes.falls_ill("hangs")
        fed.publish("q.rows", rows(10, 20))
        until(lambda: fed.status()["rows_in"] == 20)
        assert nodes.stop("a") == 1
        assert "error: node 'a': the last checkpoint could not be written\nhint: " in nodes.log("a")
        assert "Traceback" not in nodes.log("a")
        nodes.ill.unlink()
        nodes.start("a")
        assert sums(fed) == list(range(1, 21))


def test_told_to_end_it_ends_at_once_though_its_peer_is_gone(nodes: TroubledNodes) -> None:
    nodes.start()
    with md.connect(nodes.addresses["a"], timeout=TIMEOUT) as fed:
        fed.deploy(query(), at={"a": ["rows"], "b": ["sums", "out"]})
        fed.publish("q.rows", rows(0, 10))
        nodes.kill("b")
        fed.publish("q.rows", rows(10, 20))
        until(lambda: fed.status()["rows_in"] == 20)
        assert nodes.stop("a") == 0, nodes.log("a")
        nodes.start()
        with md.connect(nodes.addresses["b"], timeout="30s") as other:
            fed.finish("q.rows")
            table = other.subscribe("q.out", from_="oldest").table("60s")
            assert table["total"].to_pylist() == list(range(1, 21))
        fed.flush()
