"""A proposer and a voter change their state by their tables alone."""

from __future__ import annotations

import msgspec
import pytest

from medusa.automaton import next_state
from medusa.nodes.agreement.automaton import (
    PROPOSER,
    VOTER,
    AgreementEvent,
    ProposerState,
    VoterState,
)
from medusa.nodes.agreement.bid import Bid
from medusa.nodes.agreement.voter import Voter, voter_state
from medusa.nodes.catalog.catalog import Catalog
from medusa.nodes.catalog.kept_configurations import KeptConfiguration
from medusa.nodes.catalog.persistence import CatalogWriter
from medusa.wire.messages.configuration import Accept, Ballot, Prepare, Proposal
from medusa.wire.outbox import Outbox
from tests.nodes.agreement.agreement_trial import first, takeover

_E = AgreementEvent
NOW = first(("a", "b", "c"), secondaries=("b", "c"))
NEXT = takeover("b", 2)(NOW)
OTHER = takeover("c", 3)(NOW)


@pytest.mark.parametrize("state", ProposerState)
@pytest.mark.parametrize("event", AgreementEvent)
def test_each_event_takes_a_proposer_where_the_table_says_or_nowhere(state, event):
    bid = Bid(change=lambda now: None, suspects=(), state=state)
    assert bid.step(event) == (event in PROPOSER[state])
    assert bid.state is PROPOSER[state].get(event, state)


KEPT = {
    VoterState.FREE: KeptConfiguration(current=NOW),
    VoterState.PROMISED: KeptConfiguration(current=NOW, promised=Ballot(2, "b")),
    VoterState.ACCEPTED: KeptConfiguration(
        current=NOW, promised=Ballot(2, "b"), accepted=Proposal(ballot=Ballot(2, "b"), configuration=NEXT)
    ),
}


def voter(state):
    catalog = Catalog("a")
    catalog.configurations["q"] = KEPT[state]
    tokens = iter(range(1, 100))
    saver = CatalogWriter(catalog, outbox=Outbox(), next_token=lambda: next(tokens))
    return catalog, Voter(catalog, saver=saver, is_up=lambda node: False)


def prepare(round, node="c"):
    return node, Prepare(request=1, query="q", life=7, number=2, ballot=Ballot(round, node))


def accept(round, node="c", configuration=OTHER):
    return node, Accept(request=1, ballot=Ballot(round, node), configuration=configuration)


@pytest.mark.parametrize("state", VoterState)
@pytest.mark.parametrize(
    ("event", "does"),
    [
        (_E.PREPARE, lambda it: it.vote(*prepare(3)).code == ""),
        (_E.ACCEPT, lambda it: it.vote(*accept(3)).code == ""),
        (_E.NEWER, lambda it: it.learn(NEXT) is None),
    ],
)
def test_a_voter_goes_where_the_table_says(state, event, does):
    catalog, it = voter(state)
    assert voter_state(catalog.configurations["q"]) is state
    assert does(it)
    assert voter_state(catalog.configurations["q"]) is VOTER[state][event]


@pytest.mark.parametrize("state", [VoterState.PROMISED, VoterState.ACCEPTED])
@pytest.mark.parametrize(
    "asked", [prepare(1), accept(1), accept(0, "b", NEXT), prepare(2, "a"), accept(2, "a")]
)
def test_a_voter_does_nothing_below_its_promise(state, asked):
    catalog, it = voter(state)
    vote = it.vote(*asked)
    assert (vote.code, vote.promised) == ("E_BALLOT", Ballot(2, "b"))
    assert catalog.configurations["q"] == KEPT[state]
    assert it.token("q") == 0, "nothing is written"


def test_the_tables_have_no_state_that_is_never_reached_and_no_event_that_never_happens():
    for table, states in ((PROPOSER, ProposerState), (VOTER, VoterState)):
        reached, new = {next(iter(states))}, [next(iter(states))]
        while new:
            for state in set(table[new.pop()].values()) - reached:
                reached.add(state)
                new.append(state)
        assert reached == set(states) == set(table)
    assert {e for t in (PROPOSER, VOTER) for row in t.values() for e in row} == set(AgreementEvent)


# --- by hand, not from the tables ---------------------------------------------------------------------


def walk(table, state, *events):
    for event in events:
        state = next_state(table, state, event, of="it")
    return state.value


def test_what_was_accepted_is_forgotten_only_when_the_number_is_decided():
    for event in (_E.PREPARE, _E.ACCEPT):
        assert walk(VOTER, VoterState.ACCEPTED, event) == "accepted"
    assert walk(VOTER, VoterState.ACCEPTED, _E.NEWER) == "free"
    assert walk(VOTER, VoterState.PROMISED, _E.NEWER) == "free"


def test_only_round_0_skips_the_promises_and_only_before_any_other():
    for state in ProposerState:
        for event, target in PROPOSER[state].items():
            skips = target is ProposerState.ACCEPTING and state is not ProposerState.PREPARING
            assert skips == (state is ProposerState.RESTING and event is _E.FIRST)


def test_a_proposal_from_the_wish_to_the_end():
    steps = [_E.WANTED, _E.PROMISED, _E.OVERRULED, _E.WANTED, _E.PROMISED, _E.DECIDED]
    been = [walk(PROPOSER, ProposerState.RESTING, *steps[:n]) for n in range(len(steps) + 1)]
    assert been == ["resting", "preparing", "accepting", "pausing", "preparing", "accepting", "resting"]


# --- what a voter says --------------------------------------------------------------------------------


def test_a_promise_tells_what_was_accepted_before():
    _, it = voter(VoterState.ACCEPTED)
    vote = it.vote(*prepare(3))
    assert vote.accepted == Proposal(ballot=Ballot(2, "b"), configuration=NEXT)


def test_who_is_asked_twice_says_the_same_and_writes_nothing_more():
    catalog, it = voter(VoterState.FREE)
    one = it.vote(*accept(0, "b", NEXT))
    kept, token = catalog.configurations["q"], it.token("q")
    assert it.vote(*accept(0, "b", NEXT)) == one
    assert one.code == ""
    assert (catalog.configurations["q"], it.token("q")) == (kept, token)


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        (accept(0, "c"), "E_BALLOT"),
        (prepare(0, "b"), "E_BALLOT"),
        (("c", accept(3, "b")[1]), "E_BALLOT"),
        (prepare(1, "x"), "E_VOTER"),
        (("c", msgspec.structs.replace(prepare(1)[1], query="z")), "E_QUERY"),
        (("c", msgspec.structs.replace(prepare(1)[1], life=8)), "E_QUERY"),
        (("c", msgspec.structs.replace(prepare(1)[1], number=1)), "E_CONFIGURATION"),
        (("c", msgspec.structs.replace(prepare(1)[1], number=3)), "E_CONFIGURATION"),
        (("c", msgspec.structs.replace(prepare(1)[1], suspects=("a",))), "E_ALIVE"),
    ],
    ids=[
        "round 0 of another",
        "round 0 prepared",
        "another one's ballot",
        "it doesn't vote",
        "another query",
        "another life",
        "an earlier number",
        "a later number",
        "I am here",
    ],
)
def test_what_a_voter_refuses_changes_nothing(asked, code):
    catalog, _ = voter(VoterState.FREE)
    saver = CatalogWriter(catalog, outbox=Outbox(), next_token=lambda: 1)
    it = Voter(catalog, saver=saver, is_up=lambda node: node == "a")
    vote = it.vote(*asked)
    assert vote.code == code
    assert vote.text
    assert (vote.known is not None) == (code == "E_CONFIGURATION")
    assert catalog.configurations == {"q": KEPT[VoterState.FREE]}
    assert saver.idle
