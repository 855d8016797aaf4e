"""How often fragments take a checkpoint, through a client and the command line: planned, refused, shown."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from click.testing import CliRunner, Result

import medusa as md
from medusa.cli.main import main
from medusa.nodes.deploy import query_plan
from tests.runtime.test_standby_deploy import AT, four_nodes, query
from tests.system.nodes import TIMEOUT, until


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, md.Node]]:
    with four_nodes(tmp_path_factory.mktemp("n"), limits={"checkpoint_every": "3s"}) as made:
        yield made


@pytest.fixture
def fed(nodes: dict[str, md.Node]) -> Iterator[md.Federation]:
    with md.connect(nodes["a"].address, timeout=TIMEOUT) as made:
        until(lambda: set(made.status()["peers"].values()) == {"up"})
        yield made


def shown(fed: md.Federation) -> dict[str, int]:
    """What nodes say of their fragments, in us."""
    fragments = (each for status in fed.statuses(all=True) for each in status["fragments"])
    return {each["fragment"]: each["checkpoint_every_us"] for each in fragments}


def until_shown(fed: md.Federation, expected: dict[str, int]) -> None:
    """A node that is silent for a moment, as on a busy machine, says nothing of its fragments."""
    until(lambda: shown(fed) == expected, what=lambda: f"{expected}, and {shown(fed)}")


def test_it_is_planned_deployed_and_shown(fed: md.Federation) -> None:
    wish = {"q/some": "200ms"}
    plan = fed.plan(query(), AT, checkpoint_every=wish)
    assert plan.checkpoint_every == (("q/some", "c", 200_000),)
    assert "q/some at c: a checkpoint every 200ms" in str(plan)
    assert (plan.outputs, plan.voters, plan.warnings) == ((), (), ())
    said = fed.deploy(query(), AT, checkpoint_every=wish)
    assert said is not None
    assert (said["checkpoint_every"], said["standby"]) == ((("q/some", "c", 200_000),), {})
    assert said["warnings"] == ()
    until_shown(fed, {"q/rows": 3_000_000, "q/some": 200_000})

    def in_columns() -> dict[str, int]:
        columns = fed.tables(all=True)["fragments"].select(["fragment", "checkpoint_every_us"]).to_pylist()
        return {each["fragment"]: each["checkpoint_every_us"] for each in columns}

    until(lambda: in_columns() == shown(fed), what=lambda: f"in columns, too: {in_columns()}")
    fed.undeploy("q")


def test_one_for_all_beside_who_stands_by(fed: md.Federation) -> None:
    said = fed.deploy(query(), AT, standby={"b": ["c"]}, checkpoint_every="2s")
    assert said is not None
    assert said["standby"] == {"q/rows": ("c",)}
    assert said["checkpoint_every"] == (("q/rows", "b", 2_000_000), ("q/some", "c", 2_000_000))
    until_shown(fed, {"q/rows": 2_000_000, "q/some": 2_000_000})
    fed.undeploy("q")


def test_a_node_without_a_disk_shows_that_it_takes_none(fed: md.Federation) -> None:
    at = {"d": ["rows", "per_k", "some"]}
    fed.deploy(query(), at)
    until_shown(fed, {"q/rows": 0})
    fed.undeploy("q")


REFUSED = [
    (AT, {"nothing": "1s"}, "query.placement.box"),
    (AT, {"a": "1s"}, "query.placement.node"),
    (AT, {"rows": "1s", "per_k": "2s"}, "query.placement"),
    ({"d": ["rows", "per_k", "some"]}, {"d": "1s"}, "E_STORE"),
    ({"d": ["rows", "per_k", "some"]}, "1s", "E_STORE"),
    (AT, {}, "query.placement"),
    (AT, {3: "1s"}, "query.placement"),
    (AT, {"b": "49ms"}, "query.placement"),
    (AT, "11 min", "query.placement"),
    (AT, {"b": "soon"}, "query.duration"),
    (AT, {"b": ["1s"]}, "query.duration"),
    (AT, ["b"], "query.duration"),
]


@pytest.mark.parametrize(("at", "every", "code"), REFUSED)
def test_a_refused_deployment_and_a_refused_plan_say_the_same_and_change_nothing(
    fed: md.Federation, at: dict, every: object, code: str
) -> None:
    said = []
    for ask in (fed.plan, fed.deploy):
        with pytest.raises(md.MedusaError) as refused:
            ask(query(), at, checkpoint_every=every)  # type: ignore[operator]
        said.append((refused.value.code, refused.value.message))
    assert said[0] == said[1]
    assert said[0][0] == code
    assert "checkpoint_every" in said[0][1]
    assert fed.queries() == []


def test_a_node_that_does_not_know_it_is_not_asked_to_deploy(
    fed: md.Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It skips the field, and its answer names no interval."""
    monkeypatch.setattr(query_plan, "intervals_of", lambda plan: ())
    for ask in (fed.plan, fed.deploy):
        with pytest.raises(md.LinkError, match="release of node 'a' doesn't know") as refused:
            ask(query(), AT, checkpoint_every="2s")
        assert refused.value.code == "E_VERSION"
    assert fed.queries() == []


def test_on_the_command_line(nodes: dict[str, md.Node], fed: md.Federation, tmp_path) -> None:
    path, placed = tmp_path / "q.json", tmp_path / "at.json"
    path.write_text(query().to_json())
    placed.write_text(json.dumps(AT))

    def medusa(*args: str) -> Result:
        command = ["deploy", str(path), "--node", nodes["a"].address, "--at", str(placed), *args]
        return CliRunner().invoke(main, command)

    wish = ("--checkpoint-every", "q/some=200ms", "--checkpoint-every", "2s")
    dry = medusa(*wish, "--dry-run")
    assert dry.exit_code == 0, dry.output
    assert "q/rows at b: a checkpoint every 2s\nq/some at c: a checkpoint every 200ms\n" in dry.output
    assert fed.queries() == []
    for wrong in ("=1s", "b="):
        assert medusa("--checkpoint-every", wrong).exit_code == 2
    assert medusa(*wish, "--checkpoint-every", "*=1s").exit_code == 2
    done = medusa(*wish)
    assert done.exit_code == 0, done.output
    assert "q/some at c  checkpoint every 200ms\n" in done.output

    def line_of_it() -> str:
        status = CliRunner().invoke(main, ["status", "--node", nodes["a"].address, "--all"]).output
        return next((line for line in status.splitlines() if line.startswith("q/some")), "")

    assert " 200ms " in until(line_of_it, what="the status of its node")
    fed.undeploy("q")
