"""Splits, deployments and fragments change their state by their tables alone."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from medusa.automaton import next_state
from medusa.errors import LocalProtocolError
from medusa.nodes.catalog.catalog import Deployment
from medusa.nodes.catalog.deployment_automaton import DEPLOYMENT, DeploymentEvent, DeploymentState
from medusa.nodes.fragment.automaton import LIFE, TURN, LifeEvent, LifeState, TurnEvent, TurnState
from medusa.nodes.fragment.host import FragmentHost
from medusa.nodes.migration.automaton import OWNER, MoveEvent, OwnerState
from medusa.nodes.migration.order import OutgoingMove
from medusa.nodes.repartition.automaton import SPLIT, SplitEvent, SplitState
from medusa.nodes.repartition.job import RepartitionJob


def job(state):
    made = RepartitionJob.__new__(RepartitionJob)
    made.order, made.state, made._becoming, made._ended = (
        SimpleNamespace(box="b"),
        state,
        None,
        lambda job: None,
    )
    return made, made._step, lambda: made.state


def hosted(state):
    made = FragmentHost.__new__(FragmentHost)
    made.spec, made._life, made._turn = SimpleNamespace(name="q/f"), LifeState.RUNNING, TurnState.OPEN
    if isinstance(state, LifeState):
        made._life = state
        return made, made._lives, lambda: made._life
    made._turn = state
    return made, made._turns, lambda: made._turn


def deployment(state, began=5):
    made = Deployment(
        query="q", nodes=("a",), state=state.value, client="c", request=1, streams=(), began=began
    )
    return made, made.step, lambda: DeploymentState(made.state)


MACHINES = [
    (SPLIT, SplitState, SplitEvent, job),
    (DEPLOYMENT, DeploymentState, DeploymentEvent, deployment),
    (LIFE, LifeState, LifeEvent, hosted),
    (TURN, TurnState, TurnEvent, hosted),
]
PAIRS = [
    pytest.param(table, make, state, event, id=f"{state}, {event}")
    for table, states, events, make in MACHINES
    for state in states
    for event in events
]


@pytest.mark.parametrize(("table", "make", "state", "event"), PAIRS)
def test_each_event_in_each_state_leads_where_the_table_says_or_changes_nothing(table, make, state, event):
    _, step, now = make(state)
    if event in table[state]:
        step(event)
        assert now() is table[state][event]
        return
    with pytest.raises(LocalProtocolError, match=f"is {state.value}"):
        step(event)
    assert now() is state


@pytest.mark.parametrize(("table", "states", "events", "make"), MACHINES)
def test_every_state_is_reached_and_every_event_happens_somewhere(table, states, events, make):
    reached, new = {next(iter(states))}, [next(iter(states))]
    while new:
        for state in set(table[new.pop()].values()) - reached:
            reached.add(state)
            new.append(state)
    assert reached == set(states) == set(table)
    assert {event for row in table.values() for event in row} == set(events)


@pytest.mark.parametrize("state", OwnerState)
@pytest.mark.parametrize("event", MoveEvent)
def test_an_order_to_move_ignores_what_its_table_has_not(state, event):
    order = OutgoingMove(fragment="f", to="x", until_us=1, state=state)
    assert order.move(event) == (event in OWNER[state])
    assert order.state is OWNER[state].get(event, state)


# --- by hand, not from the tables ---------------------------------------------------------------------


def walk(table, state, *events):
    for event in events:
        state = next_state(table, state, event, of="it")
    return state.value


def test_a_split_goes_from_the_question_to_the_switch():
    e = SplitEvent
    steps = [e.AGREED, e.AT_REST, e.MADE, e.WRITTEN, e.NEAR, e.DONE]
    been = [walk(SPLIT, SplitState.ASKING, *steps[:n]) for n in range(len(steps) + 1)]
    assert been == ["asking", "draining", "cutting", "writing", "following", "switching", "over"]
    assert walk(SPLIT, SplitState.ASKING, e.AGREED_BY_WEIGHT) == "weighing"
    assert walk(SPLIT, SplitState.ASKING, e.AGREED_BY_WEIGHT, e.WEIGHED) == "draining"


def test_a_split_that_may_be_on_disk_already_cannot_be_called_off():
    """A node that dies then may find the new fragments."""
    with pytest.raises(LocalProtocolError):
        walk(SPLIT, SplitState.SWITCHING, SplitEvent.FAILED)
    assert walk(SPLIT, SplitState.SWITCHING, SplitEvent.UNWRITABLE) == "over"
    assert walk(SPLIT, SplitState.SWITCHING, SplitEvent.REMOVED) == "over"
    for state in ("asking", "weighing", "draining", "cutting", "writing", "following"):
        assert walk(SPLIT, SplitState(state), SplitEvent.FAILED) == "over"


def test_no_split_is_begun_again_and_none_skips_the_disk():
    for state in SplitState:
        for event in SplitEvent:
            target = SPLIT[state].get(event)
            assert target is not SplitState.ASKING
            assert (target is SplitState.SWITCHING) == ((state.value, event.name) == ("following", "NEAR"))
            assert (target is SplitState.FOLLOWING) == ((state.value, event.name) == ("writing", "WRITTEN"))


def test_a_query_that_is_being_removed_never_runs_again():
    for event in DeploymentEvent:
        target = DEPLOYMENT[DeploymentState.REMOVING].get(event)
        assert target is None or target.value in ("removing", "gone")
    with pytest.raises(LocalProtocolError):
        walk(DEPLOYMENT, DeploymentState.RUNNING, DeploymentEvent.FORGOTTEN)
    with pytest.raises(LocalProtocolError):
        walk(DEPLOYMENT, DeploymentState.RUNNING, DeploymentEvent.UNDO)


@pytest.mark.parametrize(("event", "began"), [("INSTALLED", 0), ("REMOVE", 0), ("UNDO", 5)])
def test_what_is_undone_takes_away_only_what_it_began(event, began):
    made, step, _ = deployment(DeploymentState.DEPLOYING)
    step(DeploymentEvent[event])
    assert made.began == began


def test_the_states_of_a_deployment_are_the_words_in_catalogs():
    assert [each.value for each in DeploymentState] == ["deploying", "running", "removing", "gone"]


@pytest.mark.parametrize(
    ("events", "frozen", "settling", "follows"),
    [
        ("", False, False, False),
        ("SETTLE", False, True, False),
        ("FREEZE", True, False, False),
        ("FREEZE SETTLE", True, True, False),
        ("SETTLE FREEZE", True, True, False),
        ("SETTLE FREEZE THAW", False, False, False),
        ("FREEZE THAW", False, False, False),
        ("HOLD", True, False, False),
        ("HOLD FREEZE", True, False, False),
        ("HOLD FOLLOW", True, False, True),
        ("HOLD FOLLOW FREEZE", True, False, True),
        ("HOLD FOLLOW THAW", False, False, False),
        ("HOLD FOLLOW THAW FREEZE", True, False, False),
        ("ASK", False, False, False),
        ("ASK ANSWERED FREEZE", True, False, False),
    ],
)
def test_whose_turn_it_is(events, frozen, settling, follows):
    made, step, _ = hosted(TurnState.OPEN)
    for name in events.split():
        step(TurnEvent[name])
    assert (made.frozen, made.settling, made.follows) == (frozen, settling, follows)


@pytest.mark.parametrize("event", ["FREEZE", "SETTLE", "HOLD", "THAW"])
def test_a_fragment_that_asks_where_it_stood_is_neither_moved_nor_split(event):
    """It is of a node without a disk, which takes part in neither."""
    with pytest.raises(LocalProtocolError):
        hosted(TurnState.ASKING)[1](TurnEvent[event])


@pytest.mark.parametrize("event", ["HOLD", "FOLLOW"])
def test_a_fragment_that_had_its_turn_never_follows_again(event):
    for turn in ("open", "frozen"):
        made, step, _ = hosted(TurnState(turn))
        if (turn, event) == ("open", "HOLD"):
            continue  # It may have been made just now.
        with pytest.raises(LocalProtocolError):
            step(TurnEvent[event])
        assert not made.follows


@pytest.mark.parametrize(
    ("events", "stopping"),
    [
        ("", False),
        ("STOP", True),
        ("FAIL", False),
        ("FAIL STOP", True),
        ("STOP FAIL", True),
        ("CLOSE", False),
    ],
)
def test_a_fragment_stops_with_its_node_failed_or_not(events, stopping):
    made, step, now = hosted(LifeState.RUNNING)
    for name in events.split():
        step(LifeEvent[name])
    assert made._stopping == stopping
    assert now() is not LifeState.RUNNING or not events
