"""Processes whose disk is lost: started with --rebuild they get from their peers what those keep of them."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner

from medusa.cli.main import main
from tests.system.nodes import ordered, until
from tests.system.standby_nodes import StandbyNodes
from tests.system.test_standby import CUT, ROWS, Clients, query

pytestmark = pytest.mark.system

FRAGMENT = "q/kind"


@pytest.fixture
def plain(tmp_path: Any) -> Iterator[StandbyNodes]:
    made = StandbyNodes(tmp_path, keyed=False)
    made.start()
    yield made
    made.close()


class SlowClients(Clients):
    """Rows go on while nodes come back, and some of them after that, however long it takes."""

    pause_s = 0.03
    held_from = ROWS - 1_000


def lose_disk(nodes: StandbyNodes, name: str) -> None:
    """``kill -9``, and its folder is gone."""
    nodes.kill(name)
    shutil.rmtree(nodes.data(name))


def test_a_secondary_and_an_owner_lose_their_disks_and_rows_go_on_exactly(plain: StandbyNodes) -> None:
    with contextlib.ExitStack() as held:
        with plain.connect("e") as fed:
            fed.deploy(query(), at=CUT, standby={"m": ["s1"]}, witness=["w"])
        plain.until_followed(FRAGMENT, 1)
        clients = SlowClients(plain, held)
        clients.until(500)
        # On a busy machine m may have been taken for silent, and s1 has it.
        second = "s1" if plain.until_followed(FRAGMENT, 1) == "m" else "m"
        lose_disk(plain, second)
        plain.start_with(second, "--rebuild")
        until(lambda: "votes again" in plain.log(second), what=f"{second} votes again")
        owner = plain.until_followed(FRAGMENT, 1)
        clients.go_on()
        clients.until(len(clients.got) + 300)
        lose_disk(plain, owner)  # What the rebuilt one has must be whole.
        plain.until_taken_over(FRAGMENT, owner)
        plain.start_with(owner, "--rebuild")
        plain.until_followed(FRAGMENT, 1)
        clients.check()
        for name in ("m", "s1"):
            until(lambda name=name: "votes again" in plain.log(name), what=f"{name} votes again")
        assert "lost with the disk" not in plain.log("m") + plain.log("s1")


def test_an_owner_that_is_back_at_once_without_its_disk_gives_its_fragment_up(plain: StandbyNodes) -> None:
    with contextlib.ExitStack() as held:
        with plain.connect("e") as fed:
            fed.deploy(query(), at=CUT, standby={"m": ["s1"]}, witness=["w"])
        plain.until_followed(FRAGMENT, 1)
        clients = Clients(plain, held)
        clients.until(500)
        owner = plain.until_followed(FRAGMENT, 1)
        lose_disk(plain, owner)
        plain.start_with(owner, "--rebuild")
        plain.until_taken_over(FRAGMENT, owner)
        plain.until_followed(FRAGMENT, 1)
        clients.check()


def test_what_nobody_stood_by_for_is_named_and_a_start_without_the_option_says_so(
    plain: StandbyNodes,
) -> None:
    with plain.connect("e") as fed:
        fed.deploy(query(), at=CUT, standby={"m": ["s1"]}, witness=["w"])
    plain.until_followed(FRAGMENT, 1)
    lose_disk(plain, "c")
    plain.start_with("c")
    until(lambda: "medusa node CONFIG.toml --rebuild" in plain.log("c"), what="it says what to do")
    plain.kill("c")
    plain.start_with("c", "--rebuild")
    until(lambda: "lost with the disk" in plain.log("c"), what="it names what is lost")
    with plain.connect("c") as fed:
        assert fed.status()["in_doubt"]["lost_parts"] == {"q": ["q.out"]}
    said = CliRunner().invoke(main, ["queries", *plain.words("c")]).output
    assert "node c has lost with its disk q (q.out): nobody stood by for it" in said
    with plain.connect("e") as fed:
        ordered(lambda: fed.undeploy("q"))
        fed.deploy(query(), at=CUT, standby={"m": ["s1"]}, witness=["w"])
    plain.until_followed(FRAGMENT, 1)
    with plain.connect("c") as fed:
        until(lambda: "lost_parts" not in fed.status()["in_doubt"], what="nothing is lost any more")


def test_a_folder_with_something_in_it_is_not_rebuilt(plain: StandbyNodes) -> None:
    with plain.connect("e") as fed:
        fed.deploy(query(), at=CUT, standby={"m": ["s1"]}, witness=["w"])
    plain.until_followed(FRAGMENT, 1)
    plain.kill("m")
    plain._launch("m", "--rebuild")
    process = plain.processes.pop("m")
    assert process.wait() == 1
    process.stdout.close()
    assert "isn't empty, so nothing is rebuilt: it has q/kind" in plain.log("m")
    plain.start("m")
