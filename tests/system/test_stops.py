"""Nodes under a stream of rows are ended, stopped, robbed of their disk: no row is lost or comes twice."""

from __future__ import annotations

import re
import resource
import shutil
import signal
from collections.abc import Iterator

import pytest

import medusa as md
from tests.system.killed import NAMES, Flow
from tests.system.nodes import ForkedNodes, Nodes, until

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    # A socket's path is short; pytest's own folders may not be.
    made = ForkedNodes(tmp_path_factory.mktemp("s"), list(NAMES), limits='checkpoint_every = "100ms"')
    try:
        made.start()
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def flow(nodes: Nodes) -> Iterator[Flow]:
    """One for all: at the end everything is there, once, whatever happened."""
    made = Flow(nodes)
    try:
        yield made
        made.end()
    finally:
        made.close()


@pytest.mark.parametrize("name", ["edge-1", "middle", "core"])
def test_a_node_ended_under_load_goes_on_from_its_last_checkpoint(
    nodes: Nodes, flow: Flow, name: str
) -> None:
    flow.goes_on()
    assert nodes.stop(name) == 0, nodes.log(name)
    assert re.search(r"info ended fragments=[1-9] rows_in=[1-9]", nodes.log(name).rstrip()), nodes.log(name)
    nodes.start(name)
    flow.goes_on()


@pytest.mark.parametrize("name", ["edge-1", "middle", "core"])
def test_a_node_that_stands_still_for_seconds_goes_on(nodes: Nodes, flow: Flow, name: str) -> None:
    """Others take it for silent and go on with their clocks; what it wakes up with is old."""
    neighbour = {"edge-1": "middle", "middle": "core", "core": "middle"}[name]
    flow.goes_on()
    with md.connect(nodes.addresses[neighbour], timeout="30s") as beside:
        nodes.processes[name].send_signal(signal.SIGSTOP)
        try:
            until(lambda: beside.status()["peers"][name] == "silent", what=f"{neighbour} notices")
            flow.stands()
        finally:
            nodes.processes[name].send_signal(signal.SIGCONT)
        until(lambda: beside.status()["peers"][name] == "up", what=f"{name} is back")
    flow.goes_on()


@pytest.mark.parametrize("name", ["middle", "core"])
def test_a_disk_that_is_full_for_a_while(nodes: Nodes, flow: Flow, name: str) -> None:
    """No file may grow, its log neither: writes fail as on a full disk. A kill then is survived too."""
    flow.goes_on()
    pid = nodes.processes[name].pid
    with md.connect(nodes.addresses[name], timeout="30s") as there:
        _, most = resource.prlimit(pid, resource.RLIMIT_FSIZE)

        def failures() -> int:
            return sum(each["checkpoint_failures"] for each in there.status()["fragments"])

        before = failures()
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, most))
        until(lambda: failures() > before + 1, what="checkpoints that fail")
        if name == "middle":
            nodes.kill(name)
            nodes.start(name)
        else:
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (most, most))
        flow.goes_on()


@pytest.mark.full
@pytest.mark.issue(5)
def test_the_middle_without_its_data_says_so(tmp_path_factory: pytest.TempPathFactory) -> None:
    """All that it held is gone: the nodes behind and before it are refused, and a new deployment works."""
    nodes = ForkedNodes(tmp_path_factory.mktemp("s"), list(NAMES), limits='checkpoint_every = "100ms"')
    try:
        nodes.start()
        flow = Flow(nodes)
        try:
            flow.goes_on()
            nodes.kill("middle")
            shutil.rmtree(nodes.data("middle"))
            nodes.start("middle")
            with md.connect(nodes.addresses["core"], timeout="30s") as core:

                def refusals() -> list[str]:
                    inputs = [each for part in core.status()["fragments"] for each in part["inputs"]]
                    return [each["refusal"] for each in inputs if each["refusal"]]

                assert "node 'middle' has no stream 'kills." in until(refusals)[0]
        finally:
            flow.close()
        with md.connect(nodes.addresses["core"], timeout="30s") as core:
            core.undeploy("kills")
        again = Flow(nodes)
        try:
            again.goes_on()
            again.end()
        finally:
            again.close()
    finally:
        nodes.close()
