"""``medusa repair``: what it shows of a stopped node's folder, what it decides, and what it refuses."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from click.testing import CliRunner

import medusa as md
from medusa.cli.main import main
from medusa.errors import ConfigError, StateError
from medusa.nodes.catalog.catalog import CATALOG, Catalog
from medusa.nodes.catalog.in_doubt import FragmentInDoubt
from medusa.nodes.repair.operator_decisions import OperatorDecisions, decided
from medusa.runtime.engine_host.group_names import GroupName, owner_of
from medusa.runtime.node.configuration import load_settings
from medusa.runtime.repair import operator_repair as repairing
from medusa.runtime.repair.operator_repair import look, repair
from tests.system.nodes import ordered

LIMITS = '[limits]\nsubscriber_timeout = "1s"\n'
"""A publisher that died is waited for no longer."""

TAKE_UP = OperatorDecisions(take_up=("q/left",))


@pytest.fixture
def node(tmp_path_factory):
    """The configuration of a node, and its folder, which has had ten rows of a union."""
    folder = tmp_path_factory.mktemp("r")  # The path of a socket has to be short.
    config = folder / "a.toml"
    config.write_text(f'name = "a"\nlisten = "ipc://{folder}/a"\ndata = "data"\n{LIMITS}')
    made = SimpleNamespace(config=config, data=folder / "data", settings=load_settings(config))
    with started(made) as fed:
        fed.deploy(query())
        fed.publish("q.left", rows(0, 10))
        fed.flush()
    return made


@contextlib.contextmanager
def started(node):
    """The node runs, and a client is connected to it."""
    with md.node(node.config) as running, running.connect("30s") as fed:
        yield fed


def query():
    q = md.Query("q")
    left, right = (
        q.source(name, {"ts": "int64", "v": "int64"}, time="ts", unit="us") for name in ("left", "right")
    )
    q.sink("out", left.union(right, name="both").running(total=md.sum("v"), name="sums"))
    return q


def rows(first, last):
    return {"ts": list(range(first, last)), "v": [1] * (last - first)}


def goes_on(node):
    with started(node) as fed:
        fed.publish("q.left", rows(10, 20))
        fed.finish("q.left")
        fed.publish("q.right", rows(0, 0))
        fed.finish("q.right")
        assert ordered(lambda: sums(fed), again=["E_CUT_OFF"]) == list(range(1, 21))
        assert fed.status()["in_doubt"] == {}


def sums(fed):
    """Read to the end; who doesn't take them for a second, as on a busy machine, is cut off."""
    with fed.subscribe("q.out", from_="oldest") as trains:
        return trains.table("30s")["total"].to_pylist()


def groups(node, kind):
    return [each for each in map(GroupName.of, os.listdir(node.data)) if each.kind == kind]


def damage(node, kind, file):
    """One bit of each group of a kind."""
    for each in groups(node, kind):
        path = node.data / each.name / file
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)


def content(folder):
    return {path.relative_to(folder): path.read_bytes() for path in Path(folder).rglob("*") if path.is_file()}


def test_a_whole_folder_is_shown_and_stays_as_it_is(node):
    before = content(node.data)
    shown = CliRunner().invoke(main, ["repair", str(node.config)])
    assert shown.exit_code == 0, shown.output
    assert "runs: q/left" in shown.stdout
    assert shown.stdout.endswith("nothing is undecided\n")
    assert content(node.data) == before


def test_what_a_checkpoint_says_is_shown(node):
    damage(node, "catalog", CATALOG)
    shown = CliRunner().invoke(main, ["repair", str(node.config)]).stdout
    assert "no older one is whole either" in shown
    assert "query q, deployed by node a, epoch 1" in shown
    assert "has 10 rows of left from " in shown
    assert "undecided: 1" in shown
    [fragment] = look(node.settings).fragments
    assert fragment.outputs[0][0] == "out"
    assert fragment.age_s < 3600
    assert fragment.groups >= 2


def test_a_fragment_that_is_taken_up_goes_on(node):
    damage(node, "catalog", CATALOG)
    repair(node.settings, OperatorDecisions(take_up=("q/left",), accept=True))
    goes_on(node)


def test_one_that_is_set_aside_is_gone_and_can_be_put_back(node):
    damage(node, "catalog", CATALOG)
    found = repair(node.settings, OperatorDecisions(accept=True), set_aside=("q/left",))
    [aside] = found.aside
    with started(node) as fed:
        assert fed.status()["fragments"] == []
        with pytest.raises(md.LinkError, match="has no source"):
            fed.publish("q.left", rows(0, 1))
    assert groups(node, "checkpoint") == []
    for name in os.listdir(aside):
        if name != "lock":
            copy = shutil.copytree if os.path.isdir(f"{aside}/{name}") else shutil.copy
            copy(f"{aside}/{name}", node.data / name)
    [fragment] = look(node.settings).fragments
    assert not fragment.named
    repair(node.settings, TAKE_UP)
    goes_on(node)


def test_one_that_is_deleted_goes_with_the_next_start(node):
    damage(node, "catalog", CATALOG)
    repair(node.settings, OperatorDecisions(delete=("q/left",), accept=True))
    assert groups(node, "checkpoint")
    with started(node) as fed:
        fed.deploy(query())
        fed.publish("q.left", rows(0, 1))
    assert [each for each in os.listdir(node.data) if each.endswith(".aside")] == []


def test_one_without_a_whole_checkpoint_is_only_begun_anew(node):
    damage(node, "checkpoint", "positions")
    before = content(node.data)
    with pytest.raises(StateError, match="no whole checkpoint left") as refused:
        repair(node.settings, TAKE_UP)
    assert refused.value.code == "state.repair"
    assert content(node.data) == before
    damaged = {each.name for each in groups(node, "checkpoint")}
    [aside] = repair(node.settings, OperatorDecisions(begin_anew=("q/left",))).aside
    assert damaged <= set(os.listdir(aside))
    with started(node) as fed:
        assert [each["rows_in"] for each in fed.status()["fragments"]] == [0]
        assert fed.status()["in_doubt"] == {}


def test_groups_that_nobody_can_read_are_kept_until_they_are_deleted(node):
    damage(node, "catalog", CATALOG)
    damage(node, "checkpoint", "positions")
    owner = owner_of("q/left")
    assert list(look(node.settings).unreadable) == [owner]
    repair(node.settings, OperatorDecisions(accept=True))
    with started(node) as fed:
        assert list(fed.status()["in_doubt"]["kept_groups"]) == [owner]
    assert groups(node, "checkpoint")
    repair(node.settings, OperatorDecisions(delete=(owner,)))
    with started(node) as fed:
        assert fed.status()["in_doubt"] == {}
    assert groups(node, "checkpoint") == []


@pytest.mark.parametrize(
    ("decisions", "says"),
    [
        (OperatorDecisions(take_up=("q/lef",)), "nothing in doubt here is called 'q/lef'"),
        (OperatorDecisions(take_up=("q/left",), delete=("q/left",)), "named twice"),
        (OperatorDecisions(begin_anew=("q/left",)), "the state of fragment 'q/left' is not lost"),
        (OperatorDecisions(accept=True), "still in doubt: 'q/left'"),
        (
            OperatorDecisions(take_up=("q/left",), delete=("other",)),
            "nothing in doubt here is called 'other'",
        ),
    ],
)
def test_a_refused_decision_changes_nothing(node, decisions, says):
    damage(node, "catalog", CATALOG)
    before = content(node.data)
    with pytest.raises(StateError, match=says):
        repair(node.settings, decisions)
    assert content(node.data) == before


def test_what_is_not_in_doubt_is_not_decided_about(node):
    with pytest.raises(StateError, match="is not in doubt: this node runs it"):
        repair(node.settings, TAKE_UP)
    with pytest.raises(StateError, match="the catalog of this node is not lost"):
        repair(node.settings, OperatorDecisions(accept=True))


def test_a_decision_that_cannot_be_written_is_none(node, monkeypatch):
    damage(node, "catalog", CATALOG)
    before = content(node.data)

    def full(store, token, files):
        raise StateError("no space left", code="state.io")

    monkeypatch.setattr(repairing, "write_catalog", full)
    with pytest.raises(StateError, match="no space left"):
        repair(node.settings, TAKE_UP)
    assert content(node.data) == before


def test_a_node_that_runs_and_folders_that_are_not_its_own_are_refused(node):
    with started(node), pytest.raises(StateError, match="node 'a' is running") as refused:
        look(node.settings)
    assert refused.value.code == "state.locked"
    with pytest.raises(StateError, match="belongs to node 'a', this is 'b'"):
        look(replace(node.settings, name="b"))
    with pytest.raises(StateError, match="can't be opened"):
        look(replace(node.settings, data=str(node.data / "none")))
    with pytest.raises(ConfigError, match="keeps nothing"):
        look(replace(node.settings, store="memory"))


def test_the_json_has_all_of_it(node):
    damage(node, "catalog", CATALOG)
    shown = json.loads(CliRunner().invoke(main, ["repair", str(node.config), "--json"]).stdout)
    assert shown["node"] == "a"
    assert shown["lost_catalog"] > 0
    assert shown["fragments"][0]["inputs"][0][2] == 10


def test_of_two_fragments_with_a_box_in_common_one_is_taken_up(node):
    damage(node, "catalog", CATALOG)
    with repairing._opened(node.settings) as opened:
        [one] = opened.found.catalog.in_doubt.fragments.values()
    catalog = Catalog("a")
    other = msgspec.structs.replace(one, spec=msgspec.structs.replace(one.spec, name="q/part"))
    assert isinstance(other, FragmentInDoubt)
    catalog.in_doubt.fragments = {"q/left": one, "q/part": other}
    with pytest.raises(StateError, match="one took the other's place"):
        decided(catalog, OperatorDecisions(take_up=("q/left", "q/part")))
    made = decided(catalog, OperatorDecisions(take_up=("q/part",), delete=("q/left",)))
    assert [each.decision for each in made.fragments.values()] == ["forget", "adopt"]
