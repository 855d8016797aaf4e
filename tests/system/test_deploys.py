"""Processes: one of five targets fails in the middle of a deployment or removal over all of them; then
nothing of it is left, or all of it runs. ``tests/nodes/test_deployed.py`` has every step."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import medusa as md
from tests.nodes.deployed import AT, NODES, query
from tests.system.nodes import TIMEOUT, Forked, ForkedNodes, ordered, until

pytestmark = pytest.mark.system

VICTIM = "t3"
MOMENTS = ["asked", "done", "answering", "answered"]
CASES = [
    (what, moment, how)
    for what in ("deploy", "undeploy")
    for moment in MOMENTS
    for how in ("dies", "hangs", "full")
]
FEW = [("deploy", "answering", "dies"), ("deploy", "asked", "full"), ("undeploy", "done", "dies")]


class DoomedNodes(ForkedNodes):
    """Six nodes; what happens to t3 stands in a file."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, list(NODES), limits='deploy_timeout = "2s"')
        self.doom = folder / "doom"

    def _launch(self, name: str) -> None:
        config, log = self.config(name), self.folder / f"{name}.log"
        doom = str(self.doom if name == VICTIM else self.folder / "none")
        order = {"program": "tests.system.doomed_node", "arguments": [str(config), doom]}
        self.processes[name] = Forked(self.nursery, config, log, **order)

    def dooms(self, text: str) -> None:
        """At once: nobody reads half of it."""
        new = self.doom.with_suffix(".new")
        new.write_text(text)
        new.rename(self.doom)

    def died(self) -> None:
        """t3 did so by itself."""
        process = self.processes.pop(VICTIM)
        assert process.wait() == -signal.SIGKILL
        process.stdout.close()


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DoomedNodes]:
    made = DoomedNodes(tmp_path_factory.mktemp("d"))  # A socket's path is short.
    made.start()
    yield made
    made.close()


def have(nodes: DoomedNodes) -> set[str]:
    """The nodes that run something of it, or have files of it."""
    found = set()
    for name in NODES:
        with md.connect(nodes.addresses[name], timeout="30s") as fed:
            status = fed.status()
            if status["fragments"] or status["queries"] or status["streams"]:
                found.add(name)
    return found


def files(nodes: DoomedNodes) -> list[str]:
    groups = [path.name for name in NODES for path in nodes.data(name).rglob("*") if path.is_dir()]
    return [name for name in groups if len(name.split("-")[0]) == 24]


def tried(nodes: DoomedNodes, what: str, moment: str, how: str) -> None:
    at = {node: list(boxes) for node, boxes in AT}
    code = ""
    with md.connect(nodes.addresses["m"], timeout=TIMEOUT) as fed:
        until(lambda: set(fed.status()["peers"].values()) == {"up"}, what="all are there")
        if what == "undeploy":
            ordered(lambda: fed.deploy(query(), at=at))
        nodes.dooms(f"{moment} {how}")
        try:
            if what == "deploy":
                fed.deploy(query(), at=at)
            else:
                fed.undeploy("q")
        except md.LinkError as error:
            code = error.code
        assert code in ("", "E_TIMEOUT"), code
        until(lambda: not nodes.doom.exists(), what="it happened")
        if how == "dies":
            nodes.died()
            nodes.start(VICTIM)
        elif how == "hangs":
            nodes.processes[VICTIM].send_signal(signal.SIGCONT)
        else:
            nodes.doom.with_suffix(".full").unlink()
        runs = what == "deploy" and not code
        until(lambda: have(nodes) == (set(NODES) if runs else set()), what=f"all or nothing: {have(nodes)}")
        if runs:
            ordered(lambda: fed.undeploy("q"))
        until(lambda: not have(nodes) and not files(nodes), what="nothing is left")


@pytest.mark.parametrize(("what", "moment", "how"), FEW)
def test_one_target_fails_in_the_middle(nodes: DoomedNodes, what: str, moment: str, how: str) -> None:
    tried(nodes, what, moment, how)


@pytest.mark.full
@pytest.mark.issue(6)
@pytest.mark.parametrize(("what", "moment", "how"), [case for case in CASES if case not in FEW])
def test_one_target_fails_at_each_moment(nodes: DoomedNodes, what: str, moment: str, how: str) -> None:
    tried(nodes, what, moment, how)
