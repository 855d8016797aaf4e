"""``medusa draw``."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

from medusa.cli import main
from medusa.dashboard import watching


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "TIMEOUT_S", 0.5)


def test_a_node_is_drawn_and_one_that_is_not_there_is_drawn_as_such(node: str, tmp_path: Path) -> None:
    out = tmp_path / "federation.svg"
    away = f"ipc://{tmp_path}/nobody"
    shown = CliRunner().invoke(main, ["draw", "--node", node, "--node", away, "-o", str(out)])
    assert (shown.exit_code, shown.output) == (0, f"{out}\n")
    keys = {each.get("data-key") for each in ElementTree.parse(out).iter()}
    assert keys >= {"node here", "fragment here cars/cars", "box here cars/cars fast", f"node {away}"}
    again = CliRunner().invoke(main, ["draw", "--node", node])
    assert ElementTree.fromstring(again.output).tag == "{http://www.w3.org/2000/svg}svg"


def test_when_no_node_answers_or_the_file_can_not_be_written_it_fails(node: str, tmp_path: Path) -> None:
    shown = CliRunner().invoke(main, ["draw", "--node", f"ipc://{tmp_path}/nobody"])
    assert shown.exit_code == 1
    assert "error: waited 500ms for node at ipc://" in shown.output
    shown = CliRunner().invoke(main, ["draw", "--node", node, "-o", str(tmp_path / "no" / "f.svg")])
    assert shown.exit_code == 1
    assert "can't be written: No such file or directory" in shown.output
