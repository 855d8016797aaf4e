"""A process is killed for good, and its disk is gone: its state was backed up at a node that sends to it. If
that is lost at once too, what is missing is said and counted."""

from __future__ import annotations

import contextlib
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

import medusa as md
from medusa.runtime.embedded.embedded_run import collect
from tests.system.nodes import eventually, run_to_end, until
from tests.system.standby_nodes import LIMITS, StandbyNodes, undisturbed
from tests.system.test_standby import CUT, ROWS, SCHEMA, Clients, rows

pytestmark = pytest.mark.system


def query(time: str | None = None) -> md.Query:
    q = md.Query("q")
    in_time: Any = {} if time is None else {"unit": "us", "slack": "0s"}
    some = q.source("rows", SCHEMA, time=time, **in_time).filter("n >= 0", name="some")
    counted = some.group_by("k").running(rows=md.count(), total=md.sum("n"), name="kind")
    q.sink("out", counted, recovery="precise", method="state_backup")
    return q


CHOSEN: dict[str, list[str]] = {}
NAMED = {"e": ["s2"], "m": ["s1"], "c": ["s2"]}


@pytest.mark.parametrize("standby", [CHOSEN, NAMED], ids=["chosen", "named"])
def test_nodes_and_their_disks_are_lost_and_each_row_comes_once(
    tmp_path_factory: pytest.TempPathFactory, standby: dict[str, list[str]]
) -> None:
    """Where nodes are named another one is lost afterwards: who it is, and whether enough vote, is known."""
    wishes: dict[str, Any] = {"standby": standby, "witness": ["w"]} if standby else {}
    with contextlib.ExitStack() as held:
        nodes = StandbyNodes(tmp_path_factory.mktemp("b"), keyed=False)
        held.callback(nodes.close)
        nodes.start()
        with nodes.connect("e") as fed:
            until(lambda: {*fed.status()["peers"].values()} == {"up"}, what="they hear each other")
            told = str(fed.plan(query(), at=CUT, **wishes))
            assert "the state of q/kind is held by e" in told
            fed.deploy(query(), at=CUT, **wishes)
        fragment = "q/kind"
        clients = Clients(nodes, held, query())
        clients.until(ROWS // 3)
        # On a busy machine m may have been taken for silent, and s1 has it.
        owner = nodes.until_followed(fragment, 1)
        assert owner == "m" or not standby or owner == "s1"
        nodes.kill(owner)
        shutil.rmtree(nodes.data(owner))

        def elsewhere() -> bool:
            return nodes.replicas(fragment)["owner"] not in (owner, "e")

        until(elsewhere, what="a node that doesn't hold it for others has it")
        nodes.until_guarded(fragment, "e")
        if standby:
            [heir] = {"m", "s1"} - {owner}
            assert nodes.replicas(fragment)["owner"] == heir
            nodes.kill(heir)
            shutil.rmtree(nodes.data(heir))
        clients.check()


def test_a_lost_fragment_goes_on_at_two_nodes_and_each_row_comes_once(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Each with a range of the keys, out of the state that a third one held. Only what has time is split."""
    undisturbed(lambda: goes_on_in_parts(tmp_path_factory.mktemp("b")))


def goes_on_in_parts(folder: Path) -> bool:
    limits = f"{LIMITS}\n[recovery]\nrestore_parts = 2"
    with contextlib.ExitStack() as held:
        nodes = StandbyNodes(folder, keyed=False, limits=limits)
        held.callback(nodes.close)
        nodes.start()
        with nodes.connect("e") as fed:
            until(lambda: {*fed.status()["peers"].values()} == {"up"}, what="they hear each other")
            standby = {"e": ["s2"], "m": ["s1", "s2"], "c": ["s2"]}
            fed.deploy(query("n"), at=CUT, standby=standby, witness=["w"])
        if nodes.until_followed("q/kind", 1) != "m":
            return False
        clients = Clients(nodes, held, query("n"))
        clients.until(ROWS // 4)
        nodes.kill("m")
        shutil.rmtree(nodes.data("m"))
        parts = {"q/kind-1": "s1", "q/kind-2": "s2"}

        def at() -> dict[str, str]:
            with nodes.connect("e") as fed:
                found = fed.status()["queries"]["q"]["configuration"]["fragments"]
            return {name: found[name]["owner"] for name in parts if name in found}

        until(lambda: at() == parts, what="each part is at a node of its own")
        clients.check()
    return True


def test_owner_and_holder_and_their_disks_are_lost_at_once_and_that_is_said_and_counted(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """As a user does it: ``medusa status`` says what waits for whom, and once both machines are back how much
    is lost; ``medusa undeploy``, and the query deployed again gives what comes from then on."""
    undisturbed(lambda: both_are_lost(tmp_path_factory.mktemp("b")))


def both_are_lost(folder: Path) -> bool:
    published = ROWS // 3
    with contextlib.ExitStack() as held:
        nodes = StandbyNodes(folder, keyed=False)
        held.callback(nodes.close)
        nodes.start()

        def status() -> str:
            return run_to_end("status", "--all", "--node", nodes.addresses["w"]).stdout

        fed = held.enter_context(nodes.connect("w"))
        until(lambda: {*fed.status()["peers"].values()} == {"up"}, what="they hear each other")
        fed.deploy(query(), at=CUT, standby={"e": ["s2"], "m": ["s1"], "c": ["s2"]})
        until(lambda: re.search(r"holds q/kind of \w+, epoch \d", status()), what="e holds the state of m")
        if nodes.replicas("q/kind", by="w")["owner"] != "m":
            return False
        assert "holds q/kind of m, epoch 1" in status()
        reader = held.enter_context(nodes.connect("c", "w")).subscribe("q.out", from_="oldest")
        publisher = held.enter_context(nodes.connect("e", "w"))
        for begin in range(0, published, 400):
            publisher.publish("q.rows", rows(begin, begin + 400))
            publisher.flush()  # It is in a checkpoint: so is what m has acknowledged by then.
        came = 0
        for train in reader:
            came += train.batch.num_rows
            if came == published:
                break
        until(lambda: (*_went_in(nodes), 0, 0)[1] > 0, what="m has acknowledged rows")
        epochs = nodes.epochs("q/rows", "q/kind", by="w")
        if (epochs, nodes.replicas("q/kind", by="w")["owner"]) != ([1] * 2, "m"):
            return False
        for name in ("m", "e"):
            nodes.kill(name)
        for name in ("m", "e"):
            shutil.rmtree(nodes.data(name))
        waits = "as without standby: waits until the node of q/kind is back"
        until(lambda: waits in status(), what="it says for whom it waits")
        until(lambda: nodes.replicas("q/rows", by="w")["owner"] == "s2", what="s2 goes on with the source")
        for name in ("m", "e"):
            nodes.start_with(name, "--rebuild")
        line = until(lambda: re.search("LOST: q/kind .*", status()), what="it says that it is lost")[0]
        assert "no node has its state any more: undeploy the query, and deploy it again" in line
        until(
            lambda: "q.out, by state backup: waits: the node of q/kind has lost its state" in status(),
            what="so does w",
        )
        count, first = until(lambda: _went_in(nodes), what="s2 has the source")
        assert (count, first > 0) == (published, True)
        told = f"q.some: {count:,} rows, and nobody keeps the first {first:,}"
        until(lambda: told in status(), what="it says how many rows it had been sent")
        until(lambda: f"q.kind: {published:,} rows had come out" in status(), what="and what had come out")
        again = held.enter_context(nodes.connect("w"))

        def undeployed() -> None:
            done = run_to_end("undeploy", "q", "--node", nodes.addresses["w"])
            assert done.returncode == 0 or not again.queries(), done.stderr

        eventually(undeployed)
        until(lambda: "LOST" not in status(), what="nothing is lost any more")
        again.deploy(query(), at=CUT, standby={"e": ["s2"], "m": ["s1"], "c": ["s2"]})
        fresh = held.enter_context(nodes.connect("c", "w")).subscribe("q.out", from_="oldest")
        again.publish("q.rows", rows(published, published + 500))
        again.finish("q.rows")
        got = [row for train in fresh for row in train.batch.to_pylist()]
        assert got == collect(query(), rows=rows(published, published + 500))["out"].to_pylist()
    return True


def _went_in(nodes: StandbyNodes) -> tuple[int, int] | tuple[()]:
    """Rows of the stream that the lost fragment reads, and the first that is kept, by whoever sends it."""
    for name in ("e", "s2"):
        with contextlib.suppress(md.MedusaError), nodes.connect(name) as fed:
            for fragment in fed.status()["fragments"]:
                for output in fragment["outputs"]:
                    if output["stream"] == "q.some":
                        return output["rows"], output["oldest_row"]
    return ()
