"""A process that is killed is noticed at once at both ends: by who called it, and by whom it called.

The nodes would wait for ten minutes for one that is only silent (``patient_node``).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from medusa.runtime.keys.key_files import CurveKey, write_key
from tests.system.nodes import Forked, Nursery, until

pytestmark = pytest.mark.system

NOTICED_S = 30.0
"""A tenth of a second is what is promised on a quiet machine; a busy one may stand still for seconds."""

LANES = 3


class Two:
    """Nodes a and b.

    Args:
        keyed: every socket has CURVE.
        both: each calls the other; else b calls nobody.
    """

    def __init__(self, folder: Path, *, keyed: bool, both: bool) -> None:
        self.folder = folder
        self.processes: dict[str, Forked] = {}
        self._nursery = Nursery()
        keys = {name: CurveKey.new() for name in "ab"}
        for name, other in ("ab", "ba"):
            address = f"ipc://{folder}/{other}"
            peer = f'{{address = "{address}", key = "{keys[other].public}"}}' if keyed else f'"{address}"'
            text = f'name = "{name}"\nlisten = "ipc://{folder}/{name}"\ndata = "{name}.data"\n'
            if keyed:
                write_key(folder / f"{name}.key", "node", keys[name])
                text += f'federation = "test"\n[keys]\nnode = "{name}.key"\n'
            text += f"[peers]\n{other} = {peer}\n[links]\nconnections = {LANES}\n"
            (folder / f"{name}.toml").write_text(text)
            self._start(name, "all" if both or name == "a" else "nobody")

    def _start(self, name: str, calls: str) -> None:
        config = self.folder / f"{name}.toml"
        order = {"program": "tests.system.patient_node", "arguments": [str(config), calls]}
        self.processes[name] = Forked(self._nursery, config, self.folder / f"{name}.log", **order)
        until(self.processes[name].said, what=f"{name} listens")

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()

    def says(self, name: str, what: str) -> bool:
        """Whether a node has said this of the other."""
        return f"info {what}" in self.log(name)

    def kill(self, name: str) -> None:
        process = self.processes.pop(name)
        process.kill()
        process.wait()
        process.stdout.close()

    def close(self) -> None:
        for name in list(self.processes):
            self.kill(name)
        self._nursery.close()


@pytest.fixture(params=[False, True], ids=["plain", "curve"])
def keyed(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("d")


@pytest.fixture
def one_way(folder: Path, keyed: bool) -> Iterator[Two]:
    made = Two(folder, keyed=keyed, both=False)
    yield made
    made.close()


@pytest.fixture
def both_ways(folder: Path, keyed: bool) -> Iterator[Two]:
    made = Two(folder, keyed=keyed, both=True)
    yield made
    made.close()


def killed_and_noticed(nodes: Two, victim: str, witness: str) -> float:
    """Seconds from the kill until the witness has said that its peer is gone."""
    assert not nodes.says(witness, "peer down")
    since_s = time.monotonic()
    nodes.kill(victim)
    until(
        lambda: nodes.says(witness, "peer down"),
        what=f"{witness} notices: {nodes.log(witness)}",
        deadline_s=NOTICED_S,
    )
    return time.monotonic() - since_s


def test_who_was_called_notices_a_kill(one_way: Two) -> None:
    """Nothing that it says could tell: it doesn't reach the peer."""
    until(lambda: one_way.says("b", "peer up"), what="b hears a")
    took_s = killed_and_noticed(one_way, "a", "b")
    print(f"who was called noticed after {1000 * took_s:.0f} ms")


@pytest.mark.parametrize(("victim", "witness"), ["ab", "ba"])
def test_of_two_that_call_each_other_either_notices_a_kill(both_ways: Two, victim: str, witness: str) -> None:
    until(lambda: all(both_ways.says(name, "peer up") for name in "ab"), what="each hears the other")
    took_s = killed_and_noticed(both_ways, victim, witness)
    print(f"noticed after {1000 * took_s:.0f} ms")
