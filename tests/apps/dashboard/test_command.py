"""``medusa draw``."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

import medusa as md
from medusa.apps.dashboard import watching
from medusa.cli.main import main
from tests.system.nodes import eventually, until


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "TIMEOUT_S", 0.5)


def test_a_node_is_drawn_and_one_that_is_not_there_is_drawn_as_such(node: str, tmp_path: Path) -> None:
    out = tmp_path / "federation.svg"
    away = f"ipc://{tmp_path}/nobody"

    def drawn() -> None:
        """On a busy machine the node may not answer in time."""
        shown = CliRunner().invoke(main, ["draw", "--node", node, "--node", away, "-o", str(out)])
        assert (shown.exit_code, shown.output) == (0, f"{out}\n")
        keys = {each.get("data-key") for each in ElementTree.parse(out).iter()}
        assert keys >= {"node here", "fragment here cars/cars", "box here cars/cars fast", f"node {away}"}

    def told() -> None:
        again = CliRunner().invoke(main, ["draw", "--node", node])
        assert again.exit_code == 0, again.output
        assert ElementTree.fromstring(again.output).tag == "{http://www.w3.org/2000/svg}svg"

    eventually(drawn)
    eventually(told)


def test_one_node_is_enough_where_it_knows_the_others(tmp_path: Path) -> None:
    addresses = {name: f"ipc://{tmp_path}/{name}" for name in ("one", "other")}
    configs = [
        {"name": name, "listen": addresses[name], "data": str(tmp_path / f"{name}.data"), "peers": peers}
        for name, peers in (("one", {"other": addresses["other"]}), ("other", {"one": addresses["one"]}))
    ]
    with md.node(configs[0]) as one, md.node(configs[1]), one.connect("60s") as fed:
        until(lambda: len(fed.nodes()) == 2, what="both are in the catalog")
        assert {each["node"]: each["address"] for each in fed.nodes()} == addresses

        def both_up() -> None:
            shown = CliRunner().invoke(main, ["draw", "--node", one.address])
            assert shown.exit_code == 0, shown.output
            kinds = {
                each.get("data-key"): each.get("class")
                for each in ElementTree.fromstring(shown.output).iter()
            }
            assert kinds.get("node one") == kinds.get("node other") == "node up"

        eventually(both_up)


def test_there_is_a_key_for_each_node_or_none() -> None:
    for command in ("draw", "dashboard"):
        shown = CliRunner().invoke(main, [command, "--node", "a", "--node", "b", "--server-key", "k"])
        assert shown.exit_code == 2
        assert "2 times --node, but 1 times --server-key" in shown.output


def test_when_no_node_answers_or_the_file_can_not_be_written_it_fails(node: str, tmp_path: Path) -> None:
    shown = CliRunner().invoke(main, ["draw", "--node", f"ipc://{tmp_path}/nobody"])
    assert shown.exit_code == 1
    assert "error: waited 500ms for node at ipc://" in shown.output
    shown = CliRunner().invoke(main, ["draw", "--node", node, "-o", str(tmp_path / "no" / "f.svg")])
    assert shown.exit_code == 1
    assert "can't be written: No such file or directory" in shown.output
