"""The last copies of a fragment are lost at once: it is said who may have it still, or that nobody has."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from medusa.nodes.recovery.last_copies import LastCopies
from medusa.wire.outbox import Outbox, ReportLine
from medusa.wire.status_and_metrics import StatelessStatus
from tests.nodes.recovery.test_lost_disks import lose_disk
from tests.nodes.taken_over import HALF, ROWS, Run
from tests.nodes.test_taken_over import CUT, WHOLE, counting, run_of


def stateless(run: Run, node: str) -> dict[str, StatelessStatus]:
    return run.fed.nodes[node].brain.recovery.stateless()


def said(run: Run) -> list[tuple[str, str]]:
    """Node and fragment of each time that one was said to be lost."""
    return [
        (name, str(line.fields["fragment"]))
        for name, node in run.fed.nodes.items()
        for line in node.reports
        if line.what == "last copy lost"
    ]


def going(at: Any, standby: dict[str, list[str]], **more: Any) -> tuple[Run, str]:
    run, fragment = run_of(counting(), at, standby, **more)
    run.until_guarded(fragment, len(standby["m"]))
    run.publish(0, HALF)
    run.fed.run(for_us=20_000)
    return run, fragment


def lose_both(run: Run, *, disk: bool) -> None:
    """The owner its disk, and who stands by its disk or its process: at once."""
    for name in ("m", "s1"):
        run.fed.nodes[name].crash()
    run.fed.nodes["m"].lose_disk()
    if disk:
        run.fed.nodes["s1"].lose_disk()
    for name in ("m", "s1"):
        run.fed.restart(name)


@pytest.mark.parametrize("at", [WHOLE, CUT], ids=["clients", "nodes"])
@pytest.mark.parametrize("disk", [True, False], ids=["two disks", "a disk and a process"])
def test_a_fragment_that_nobody_has_is_said_to_be_lost_until_it_is_undeployed(at: Any, disk: bool) -> None:
    run, fragment = going(at, {"m": ["s1"]})
    assert not stateless(run, "m")
    lose_both(run, disk=disk)
    run.until(lambda: any(each.lost for each in stateless(run, "s1").values()), "s1 knows that it is lost")
    run.fed.run(for_us=5_000_000)
    found = stateless(run, "s1")[fragment]
    assert (found.query, found.may_have_it, found.lost) == ("q", (), True)
    assert found.streams
    assert "undeploy the query" in found.why
    if disk:  # Nothing is decided any more: the owner can't know that the other has nothing either.
        waiting = stateless(run, "m")[fragment]
        assert (waiting.owner, waiting.may_have_it, waiting.lost) == ("m", ("s1",), False)
        assert "s1 may have it" in waiting.why
    else:  # It was given to the other.
        assert found.owner == "s1"
        assert not stateless(run, "m")
    assert set(said(run)) == {("s1", fragment)}
    assert len(said(run)) == (1 if disk else 2), "once for each epoch"
    run.undeploy()
    run.until(lambda: not run.remains(), "nothing is left")
    assert not any(stateless(run, name) for name in ("m", "s1"))


@pytest.mark.parametrize(("secondaries", "keeps"), [((), True), ((), False), (("s1",), True)], ids=str)
def test_what_is_damaged_is_not_lost_while_an_older_checkpoint_is_whole(
    secondaries: tuple[str, ...], keeps: bool
) -> None:
    """An operator may take that up; with the query undeployed it would be gone."""
    each = SimpleNamespace(
        fragment="q/rows",
        epoch=3,
        owner="m",
        secondaries=secondaries,
        predecessors=(),
        streams=("q.out",),
        reads=(),
        gone=False,
    )
    outbox = Outbox()
    copies = LastCopies(
        "m",
        outbox=outbox,
        configuration=lambda query: SimpleNamespace(replicas={"q/rows": each}.get),  # type: ignore[arg-type, return-value]
        without_state=lambda: {("q/rows", 3): True},
        emptied=lambda: (),
        could_have=lambda fragment: False,
        keeps=lambda fragment: keeps,
    )
    copies.tick()
    lost = not secondaries and not keeps
    assert [line.what for line in outbox.take() if isinstance(line, ReportLine)] == ["last copy lost"] * lost
    assert [(each.lost, each.may_have_it) for each in copies.status().values()] == (
        [(lost, secondaries)] if lost or secondaries else []
    )


def test_it_is_not_lost_while_one_is_away_that_may_have_it() -> None:
    """It stood by, and is only cut off: when it is heard it goes on."""
    run, fragment = going(CUT, {"m": ["s1"]}, witnesses=("w", "x"))
    for other in run.fed.nodes:
        if other != "s1":
            run.fed.network.cut("s1", other)
            run.fed.network.cut(other, "s1")
    lose_disk(run, "m")
    run.until(lambda: fragment in stateless(run, "m"), "the owner says so")
    run.fed.run(for_us=5_000_000)
    assert stateless(run, "m")[fragment].may_have_it == ("s1",)
    assert not stateless(run, "s1")
    run.fed.network.heal_all()
    run.until_owned(fragment, "s1")
    run.publish(HALF, ROWS)
    run.check()
    assert not stateless(run, "m")
    assert not said(run)


def test_nobody_says_that_it_is_lost_where_another_goes_on() -> None:
    """One that stood by was restarted, and has nothing; another has it."""
    run, fragment = going(CUT, {"m": ["s1", "s2"]}, witnesses=("w", "x"))
    assert run.replicas(fragment).secondaries == ("s1", "s2")
    lose_both(run, disk=False)
    run.until_owned(fragment, "s2")
    run.publish(HALF, ROWS)
    run.check()
    assert not said(run)
    run.until(lambda: not any(stateless(run, name) for name in ("m", "s1", "s2")), "nothing is missing")
