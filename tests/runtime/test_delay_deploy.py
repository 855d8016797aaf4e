"""X of an output, through a client and the command line: planned, refused, deployed, shown."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import medusa as md
from medusa.cli.main import main
from medusa.errors import LinkError

PROMISE = "q.out, delay 2s: a failure adds at most 2s to what inputs that are reached bring"
MASKED = "one of up to 1s 800ms shows nothing (margin 200ms)"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[md.Node]:
    folder = tmp_path_factory.mktemp("n")
    config = {"name": "here", "listen": f"ipc://{folder}/n", "data": str(folder / "data")}
    with md.node(config, report=lambda *_: None) as made:
        yield made


def query(delay: str | None = "2s", name: str = "q") -> md.Query:
    q = md.Query(name)
    one, other = (
        q.source(each, {"ts": "int64", "k": "int64"}, time="ts", unit="s", slack="0s")
        for each in ("one", "other")
    )
    q.sink("out", one.join(other, on="k", within="1s", name="meet"), delay=delay)
    return q


def medusa(node: md.Node, path: Path, *more: str) -> Result:
    return CliRunner().invoke(main, ["deploy", str(path), "--node", node.address, *more])


def test_planned_deployed_and_shown(node: md.Node, tmp_path: Path) -> None:
    path = tmp_path / "q.json"
    path.write_text(query().to_json())
    with node.connect("60s") as fed:
        plan = fed.plan(query())
        assert str(plan.delays[0]).startswith(PROMISE)
        assert fed.plan(query(None)).delays == ()
        dry = medusa(node, path, "--dry-run")
        assert dry.exit_code == 0, dry.output
        assert PROMISE in dry.output
        assert MASKED in dry.output
        (said,) = json.loads(medusa(node, path, "--dry-run", "--json").output)["delays"]
        usual = ["process", "process"]
        assert said == {
            "stream": "q.out",
            "delay_us": 2_000_000,
            "least_us": 2_000_000,
            "waits": True,
            "wished": usual,
            "policies": usual,
        }
        assert fed.queries() == []
        assert medusa(node, path).exit_code == 0
        shown = CliRunner().invoke(main, ["status", "--node", node.address]).output
        assert PROMISE in " ".join(shown.split())
        (fragment,) = fed.status()["fragments"]
        assert (fragment["delay_us"], fragment["outputs"][0]["delay_us"]) == (2_000_000, 2_000_000)
        fed.undeploy("q")


def test_too_little_is_refused_by_a_plan_as_by_a_deployment_with_the_least(
    node: md.Node, tmp_path: Path
) -> None:
    path = tmp_path / "q.json"
    path.write_text(query("500ms").to_json())
    with node.connect("60s") as fed:
        for refused in (fed.plan, fed.deploy):
            with pytest.raises(LinkError, match="sink 'out': delay: 500ms is too little") as caught:
                refused(query("500ms"))
            assert (caught.value.code, caught.value.hint) == ("E_DELAY", 'the least is delay="800ms"')
        for more in ((), ("--dry-run",)):
            shown = medusa(node, path, *more)
            assert shown.exit_code == 1
            assert "500ms is too little" in shown.output
            assert 'the least is delay="800ms"' in shown.output
        assert fed.queries() == []
