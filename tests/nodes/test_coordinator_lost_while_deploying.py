"""The node that deploys a query is lost before all of it is there: whoever has its role then removes it.

e deploys rows (nobody stands by), kind (guarded, at m) and out (nobody stands by, at c).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from medusa.nodes.agreement.missing_parts import missing_parts, never_given
from medusa.nodes.catalog.catalog import RUNNING, Catalog, ForwardingAddress
from medusa.nodes.catalog.in_doubt import InDoubt
from medusa.nodes.recovery.coordination import AWAY_US
from medusa.wire.messages.configuration import Configuration, QueryParts, Replicas
from tests.nodes.taken_over import Run
from tests.nodes.test_coordinator_lost import coordinators, deployment, until_coordinated
from tests.nodes.test_taken_over import CUT, check_removed, counting

STANDBY = {"m": ["s1", "s2"]}
UNDONE = "query removed: its coordinator was lost while it was deployed"


def half_deployed(without: Sequence[str]) -> Run:
    """By e, which never reaches these. All that vote know the query."""
    run = Run(counting(), CUT, standby=STANDBY, witnesses=("w", "x"), deploys="e")
    for name in without:
        run.fed.network.cut("e", name)
    run.deployer.deploy_guarded(run.q, run.at, run.standby, run.witnesses)
    others = [name for name in ("m", "c", "s1", "s2", "w", "x") if name not in without]
    run.until(lambda: all(run.current(name) is not None for name in others), "they know the query")
    has = {"m": "q/kind", "c": "q/out"}
    for name in set(has) - set(without):
        run.until(lambda name=name: has[name] in run.fed.nodes[name].brain.fragments, "it has its part")
    return run


def told(run: Run) -> list[str]:
    """Why the query was removed, as nodes say."""
    return [
        str(report.fields["why"])
        for node in run.fed.nodes.values()
        for report in node.reports
        if report.what == UNDONE
    ]


def check_deployed_again(run: Run) -> None:
    run.deployer = run.fed.client("again", "s1")
    run.deploy()
    run.until_guarded("q/kind", 2)
    assert coordinators(run) == ["s1"]


@pytest.mark.parametrize(
    ("without", "why"),
    [
        (["c"], "node 'c' was never given 'q.out'"),
        (["m"], "node 'm' was never given 'q/kind'"),
    ],
    ids=["nobody stands by", "guarded, and its node is the successor"],
)
def test_what_was_never_there_in_full_is_removed_by_whoever_has_the_role_then(
    without: list[str], why: str
) -> None:
    run = half_deployed(without)
    run.lose("e")
    run.until(lambda: bool(told(run)), "the successor has heard")
    assert told(run) == [why]
    check_removed(run)
    run.until(lambda: not coordinators(run), "it is done")
    run.fed.network.heal_all()
    run.fed.restart("e")
    run.lost.clear()
    run.until(
        lambda: run.fed.nodes["e"].alive and not run.remains() and not coordinators(run), "e forgets it"
    )
    run.at = {"s3": CUT["e"], "m": CUT["m"], "c": CUT["c"]}
    check_deployed_again(run)


def test_a_node_that_was_away_says_so_when_it_is_back() -> None:
    run = half_deployed(["c"])
    run.lose("c")
    run.lose("e")
    until_coordinated(run, "m")
    run.fed.run(for_us=3 * AWAY_US)
    assert coordinators(run) == ["m"], "nobody can say what c has"
    run.fed.restart("c")
    run.lost.discard("c")
    run.until(lambda: bool(told(run)), "c has said")
    check_removed(run)


def test_a_successor_that_is_restarted_asks_anew() -> None:
    run = half_deployed(["c"])
    run.lose("c")
    run.lose("e")
    until_coordinated(run, "m")
    run.fed.nodes["m"].crash()
    run.fed.restart("m")
    until_coordinated(run, "m")
    run.fed.restart("c")
    run.lost.discard("c")
    run.until(lambda: bool(told(run)), "c has said")
    check_removed(run)


def test_one_that_was_there_in_full_stays_though_its_client_was_not_told() -> None:
    run = half_deployed([])
    run.lose("e")
    until_coordinated(run, "m")
    run.fed.run(for_us=5 * AWAY_US)
    assert coordinators(run) == ["m"]
    made = deployment(run, "m")
    assert made is not None
    assert made.state == RUNNING
    assert told(run) == []


# --- what a node can say ----------------------------------------------------------------------------------

NOW = Configuration(
    query="q",
    number=3,
    coordinator="b",
    voters=("a", "b", "c"),
    fragments=(Replicas(fragment="q/f", owner="a", epoch=1, members=("a", "b"), streams=("q.mid",)),),
    life=7,
    parts=QueryParts(nodes=("a", "b"), streams=(("q.out", "a"), ("q.other", "b"))),
)


def test_a_node_names_what_it_should_have_and_never_had() -> None:
    assert missing_parts(Catalog("a"), NOW) == ("q/f", "q.out")
    assert missing_parts(Catalog("b"), NOW) == ("q.other",)
    assert missing_parts(Catalog("c"), NOW) == ()
    many = tuple(f"q/{number}" for number in range(6))
    assert never_given("a", many) == "node 'a' was never given 'q/0', 'q/1', 'q/2', 'q/3' and 2 more"


def gone() -> Catalog:
    catalog = Catalog("a")
    names = ("q.out", "q.mid")
    catalog.left["q/g"] = ForwardingAddress(query="q", node="c", epoch=2, names=names)
    catalog.ownership.replaced["q/f"] = "q/f#route"
    return catalog


def doubtful() -> Catalog:
    catalog = Catalog("a")
    catalog.in_doubt = InDoubt(ever=True)
    return catalog


def rebuilt() -> Catalog:
    catalog = Catalog("a")
    catalog.begins_anew(3)
    return catalog


@pytest.mark.parametrize("catalog", [gone(), doubtful(), rebuilt()], ids=["gone", "doubtful", "rebuilt"])
def test_what_was_here_or_may_have_been_was_not_never_given(catalog: Catalog) -> None:
    """A running query would be removed."""
    assert missing_parts(catalog, NOW) == ()


def test_what_another_has_had_since_is_not_missing() -> None:
    [replicas] = NOW.fragments
    later = msgspec.structs.replace(replicas, epoch=2)
    split = msgspec.structs.replace(replicas, members=())
    for each in (later, split):
        current = msgspec.structs.replace(NOW, fragments=(each,), parts=None)
        assert missing_parts(Catalog("a"), current) == ()
