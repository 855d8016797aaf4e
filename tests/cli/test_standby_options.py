"""What the command line says of standbys: by its options, not by the arguments of ``fed.deploy``."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

import medusa as md
from medusa.cli.main import main
from medusa.cli.options.standby_options import as_options
from medusa.runtime.client.deployment_wishes import EXAMPLE


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (EXAMPLE, "--standby core=spare-1,spare-2, or --standby auto"),
        ('standby="auto", or standby={"m": ["NODE"]}', "--standby auto, or --standby m=NODE"),
        ("have one vote, witness=['c']", "have one vote, --witness c"),
        ("name another node", "name another node"),
    ],
)
def test_hints_name_options(text: str, said: str) -> None:
    assert as_options(text) == said


def test_refusals_of_a_node_come_with_options(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder: Path = tmp_path_factory.mktemp("o")
    q = md.Query("q")
    q.sink("out", q.source("rows", {"v": "int64"}, time=None), recovery="precise")
    (folder / "q.json").write_text(q.to_json())

    def run(*arguments: object) -> list[str]:
        found = CliRunner().invoke(main, [*map(str, arguments), "--node", f"ipc://{folder}/n"])
        assert found.exit_code == 1
        return found.stderr.splitlines()

    with md.node({"name": "n", "listen": f"ipc://{folder}/n", "data": folder / "d"}):
        assert run("deploy", folder / "q.json")[-1] == "hint: --standby auto, or --standby n=NODE"
        assert run("undeploy", "p") == ["error: no query 'p' is deployed, as far as node 'n' knows"]
