"""One agreement at a time, in a calm world: what is asked of whom, what decides, and who hears of it."""

from __future__ import annotations

import msgspec
import pytest

from medusa.errors import LocalProtocolError
from medusa.nodes.agreement.bid import ASK_US
from medusa.nodes.catalog.catalog import Catalog
from medusa.wire.messages.commands import Reply
from medusa.wire.messages.configuration import (
    NAMES_BYTES_MAX,
    Accept,
    Ballot,
    Configuration,
    Configure,
    Prepare,
    Replicas,
    Vote,
)
from medusa.wire.outbox import Persist, ReportLine, Send
from tests.nodes.agreement.agreement_trial import QUERY, Trial, first, takeover, voting


class Calm(Trial):
    """Nothing goes wrong that the test doesn't do; ``words`` is what was said, in order."""

    def __init__(self, voters=3, begin=None):
        self.words = []
        super().__init__(1, voters=voters)
        self.chaos = False
        self.begin = self.chosen[1] = begin or self.begin
        self.told = []
        self.actors["a"].agreement.install(0, self.begin)
        self.actors["a"].flush()
        self.settle()
        self.words.clear()

    def send(self, sender, peer, message):
        self.words.append((sender.name, peer, message))
        super().send(sender, peer, message)

    def decided(self, name, old, new):
        if new.life == self.begin.life and new.number in self.chosen:
            super().decided(name, old, new)
        if old is not None:
            self.told.append((name, old.number, new.number))

    def settle(self, for_us=400_000):
        self.go(for_us)

    def lose(self, name):
        """It is dead, and all others know."""
        self.actors[name].crash()
        self.gone = (*self.gone, name)
        for other in self.living():
            self._see(other, name, up=False)

    def back(self, name):
        self.gone = tuple(each for each in self.gone if each != name)
        self._restart(self.actors[name])
        self.actors[name].flush()

    def propose(self, name, change, suspects=()):
        self.actors[name].agreement.propose(self.now_us, QUERY, change, suspects=suspects)
        self.actors[name].flush()

    def hear(self, name, peer, message):
        """``name`` hears this from ``peer``; what it answers to it."""
        before = len(self.words)
        self.actors[name].trial._heard(self.actors[name], peer, message)
        self.actors[name].flush()
        self.settle()
        return [word for who, to, word in self.words[before:] if (who, to) == (name, peer)]

    def number(self, name):
        now = self.actors[name].agreement.current(QUERY)
        return None if now is None else now.number

    def said(self, sender, message):
        if message.__class__ in (Prepare, Accept, Vote):
            super().said(sender, message)

    def kinds(self, *kinds):
        return [(who, to) for who, to, word in self.words if isinstance(word, kinds)]


def status(world, name):
    return world.actors[name].agreement.status()[QUERY]


# --- what decides -------------------------------------------------------------------------------------


def test_the_first_configuration_comes_to_all_that_it_names_and_is_on_their_disks():
    world = Calm()
    for name in "abc":
        assert world.number(name) == 1
        assert world.actors[name].known[QUERY].current == world.begin
    assert world.actors["a"].agreement.untold(QUERY) == ()
    assert world.number("d") is None


def test_the_first_secondary_takes_over_in_one_round_trip():
    world = Calm()
    world.lose("a")
    world.words.clear()
    world.propose("b", takeover("b", 2), suspects=("a",))
    world.settle()
    assert world.kinds(Prepare) == []
    assert world.kinds(Accept) == [("b", "c")]
    assert world.kinds(Vote) == [("c", "b")]
    assert [world.number(name) for name in "bc"] == [2, 2]
    assert world.told == [("b", 1, 2), ("c", 1, 2)], "each is told once"
    assert not world.actors["b"].agreement.proposing(QUERY)


def test_others_ask_for_promises_first():
    world = Calm()
    world.lose("a")
    world.words.clear()
    world.propose("c", takeover("c", 2), suspects=("a",))
    world.settle()
    assert world.kinds(Prepare, Accept) == [("c", "b"), ("c", "b")]
    assert world.actors["b"].agreement.current(QUERY).coordinator == "c"


def test_of_two_nodes_one_alone_decides_nothing():
    world = Calm(voters=2)
    world.lose("a")
    world.propose("b", takeover("b", 2), suspects=("a",))
    world.settle(60_000_000)
    assert world.number("b") == 1
    assert (status(world, "b").proposing, status(world, "b").silent) == ("accepting", ("a",))
    world.actors["b"].agreement.withdraw(QUERY)
    assert not world.actors["b"].agreement.proposing(QUERY)
    world.back("a")
    world.propose("a", voting("a", ("a", "b", "c"), 3))
    world.settle()
    assert world.number("a") == world.number("b") == 2, "both have voted, so nobody can have decided on b"
    assert world.actors["b"].agreement.current(QUERY).coordinator == "a"


def test_what_a_silent_voter_may_have_accepted_is_brought_to_its_end():
    world = Calm(voters=3)
    world.lose("a")
    world.lose("c")
    world.propose("b", takeover("b", 2), suspects=("a",))
    world.settle()
    assert world.number("b") == 1
    world.actors["b"].agreement.withdraw(QUERY)
    world.back("a")
    world.propose("a", voting("a", ("a", "b", "c", "d"), 3))
    world.settle()
    assert world.number("a") == world.number("b") == 3, "c might have accepted it too"


def test_a_witness_makes_the_majority():
    world = Calm(begin=first(("a", "b", "c"), secondaries=("b",)))
    world.lose("a")
    world.propose("b", takeover("b", 2), suspects=("a",))
    world.settle()
    assert world.number("b") == world.number("c") == 2


def test_who_hears_a_suspect_refuses_and_votes_at_once_when_it_does_no_more():
    world = Calm()
    world._see(world.actors["b"], "a", up=False)
    world.propose("b", takeover("b", 2), suspects=("a",))
    world.settle(3_000_000)
    assert world.number("b") == 1
    assert status(world, "b").refused == {"c": "node 'c' hears 'a'"}
    assert status(world, "b").silent == ("a",)
    asked = len(world.kinds(Accept))
    world.lose("a")
    world.settle(2_000)
    assert world.number("b") == 2
    assert len(world.kinds(Accept)) == asked, "nobody was asked again for that"


def test_who_hears_a_suspect_itself_proposes_nothing_before_the_link_is_down():
    world = Calm()
    world.propose("b", takeover("b", 2), suspects=("a",))
    world.settle()
    assert world.words == []
    assert status(world, "b").refused == {"b": "node 'b' hears 'a'"}
    world.lose("a")
    world.settle()
    assert world.number("b") == 2


def test_suspects_that_have_changed_count_at_once():
    world = Calm()
    world._see(world.actors["b"], "a", up=False)
    world.propose("b", takeover("b", 2), suspects=("a",))
    world.settle()
    assert world.number("b") == 1
    world.propose("b", takeover("b", 2))
    world.settle()
    assert world.number("b") > 1


def test_a_wish_that_is_fulfilled_already_asks_nobody():
    world = Calm()
    world.propose("b", lambda now: None)
    assert not world.actors["b"].agreement.proposing(QUERY)
    assert world.words == []


def test_who_does_not_vote_proposes_nothing():
    world = Calm()
    world.hear("d", "a", Configure(request=0, configuration=world.begin))
    for name in ("d", "e"):  # d knows it, e doesn't.
        world.propose(name, takeover(name, 2))
        world.settle()
        assert not world.actors[name].agreement.proposing(QUERY)
    assert world.kinds(Prepare, Accept) == []


def test_a_change_that_does_not_follow_is_a_mistake():
    world = Calm()
    with pytest.raises(LocalProtocolError, match="configuration 1 of query 'q' can't follow 1"):
        world.propose("b", lambda now: now)


def test_a_wish_is_asked_for_again_when_another_one_went_before():
    world, asked = Calm(), []

    def change(now):
        asked.append(now.number)
        return takeover("c", 9)(now)

    world.propose("b", takeover("b", 2))
    world.propose("c", change)
    world.settle(3_000_000)
    assert [world.number(name) for name in "abc"] == [3, 3, 3]
    assert world.by_number[2].coordinator == "b"
    assert world.by_number[3].coordinator == "c"
    assert set(asked) == {1, 2}


def test_a_node_that_comes_back_uses_no_ballot_twice():
    world = Calm()
    world.lose("a")
    world.lose("c")
    world.propose("b", takeover("b", 2))
    world.settle()
    world.lose("b")
    world.back("b")
    world.propose("b", takeover("b", 3))
    world.settle()
    assert world.actors["b"].known[QUERY].promised == Ballot(1, "b"), "not round 0 again"
    world.back("c")
    world.settle(2_000_000)
    assert world.number("b") == world.number("c") == 2
    assert world.by_number[2].replicas("q/f").epoch == 2, "what it had accepted in round 0"


def test_a_voter_that_is_behind_is_told_and_votes():
    world = Calm()
    world.lose("a")
    world._see(world.actors["b"], "c", up=False)
    world.back("a")
    world.propose("b", voting("b", ("b", "a", "c"), 2))
    world.settle()
    assert (world.number("a"), world.number("c")) == (2, 1)
    world.lose("a")
    world.actors["b"].down.discard("c")  # Nobody has told it yet.
    world.propose("b", voting("b", ("a", "b", "c"), 3))
    world.settle()
    assert world.number("b") == world.number("c") == 3


# --- what is told -------------------------------------------------------------------------------------


def test_who_was_away_is_told_when_it_is_back_and_until_it_has_answered():
    world = Calm()
    world.lose("a")
    world.propose("b", takeover("b", 2), suspects=("a",))
    world.settle()
    assert "a" in world.actors["b"].agreement.untold(QUERY)
    world.back("a")
    world.settle()
    assert world.number("a") == 2
    for name in "bc":
        assert world.actors[name].agreement.untold(QUERY) == ()
    world.words.clear()
    world.settle(60_000_000)
    assert world.words == [], "and then no more"


def test_neighbours_that_a_configuration_does_not_name_are_told():
    world = Calm()
    world.actors["b"].agreement._announcements._audience = lambda query: ("e", "x")
    world.propose("b", takeover("b", 2))
    world.settle()
    assert (world.number("d"), world.number("e")) == (None, 2)
    assert world.actors["b"].agreement.untold(QUERY) == (), "x is no peer"


def test_who_was_told_tells_those_that_the_decider_no_longer_can():
    world = Calm()
    world._see(world.actors["b"], "a", up=False)
    world.propose("b", takeover("b", 2))
    world.settle(300_000)
    assert (world.number("c"), world.number("a")) == (2, 1)
    world.lose("b")
    world.settle(2_000_000)
    assert world.number("a") == 2


def test_an_older_configuration_is_answered_with_the_newer():
    world = Calm()
    world.propose("b", takeover("b", 2))
    world.settle()
    answers = world.hear("c", "d", Configure(request=5, configuration=world.begin))
    assert Reply(request=5, code="E_CONFIGURATION", text="configuration 2 is known at node 'c'") in answers
    assert world.number("d") == 2


def test_a_second_configuration_of_one_number_is_refused_and_reported():
    world = Calm()
    other = msgspec.structs.replace(world.begin, voters=("c", "b", "a"))
    actor = world.actors["c"]
    world._heard(actor, "d", Configure(request=5, configuration=other))
    effects = actor.outbox.take()
    assert [each.message.code for each in effects if isinstance(each, Send)] == ["E_CONFIGURATION"]
    [report] = [each for each in effects if isinstance(each, ReportLine)]
    assert (report.level, report.what) == ("error", "two configurations of one number")
    assert actor.agreement.current(QUERY) == world.begin


def test_what_is_late_of_a_removed_query_does_not_make_it_anew():
    world = Calm()
    actor, late = world.actors["c"], Configure(request=5, configuration=world.begin)
    actor.agreement.forget(QUERY)
    actor.flush()
    world.settle()
    [answer] = world.hear("c", "d", late)
    assert (answer.code, world.number("c")) == ("E_REMOVED", None)
    actor.crash()
    actor.start()
    [answer] = world.hear("c", "d", late)
    assert (answer.code, world.number("c")) == ("E_REMOVED", None), "over a restart too"
    again = first(("a", "b", "c"), life=8)
    [answer] = world.hear("c", "d", Configure(request=6, configuration=again))
    assert (answer.code, actor.agreement.current(QUERY)) == ("", again)
    [answer] = world.hear("c", "d", late)
    assert (answer.code, actor.agreement.current(QUERY)) == ("E_REMOVED", again)


def test_forgetting_ends_what_was_wanted():
    world = Calm()
    world.propose("c", takeover("c", 2))
    world.actors["c"].agreement.forget(QUERY)
    world.actors["c"].outbox.take()
    assert world.actors["c"].agreement.wake_at_us() is None
    assert world.actors["c"].agreement.status() == {}
    assert not world.actors["c"].agreement.proposing(QUERY)


def test_nothing_is_promised_and_nothing_answered_while_the_disk_is_full():
    world = Calm()
    actor = world.actors["c"]
    ask = Prepare(request=9, query=QUERY, life=7, number=2, ballot=Ballot(1, "b"))
    for message in (ask, Configure(request=8, configuration=takeover("b", 2)(world.begin))):
        world._heard(actor, "b", message)
        effects = actor.outbox.take()
        [write] = [each for each in effects if isinstance(each, Persist)]
        [send] = [each for each in effects if isinstance(each, Send)]
        assert send.after == write.token
        assert actor.saver.written(world.now_us, write.token, False, "no room")
        assert not [each for each in actor.outbox.take() if isinstance(each, Send)]
        actor.saver.tick(world.now_us + 20_000_000)
        [write] = [each for each in actor.outbox.take() if isinstance(each, Persist)]
        assert actor.saver.written(world.now_us, write.token, True)
        [send] = [each for each in actor.outbox.take() if isinstance(each, Send)]
        assert send.message.request == message.request


def test_messages_of_nobody_and_late_ones_change_nothing():
    world = Calm()
    yes = Vote(request=1, query=QUERY, number=2, ballot=Ballot(1, "c"))
    for vote in (yes, msgspec.structs.replace(yes, query="z")):
        assert world.hear("c", "b", vote) == []
    assert not world.actors["c"].agreement.answered(0, "b", Reply(request=10**9))
    assert world.number("c") == 1


# --- what is kept and said ----------------------------------------------------------------------------


def test_the_catalog_keeps_what_was_promised_and_an_older_one_has_nothing_of_it():
    world = Calm()
    world.lose("a")
    world.lose("c")
    world.propose("b", takeover("b", 2))
    world.settle()
    actor = world.actors["b"]
    again = Catalog.from_bytes(actor.disk, node="b", where="here")
    assert again.configurations == actor.catalog.configurations
    assert again.configurations[QUERY].accepted.ballot == Ballot(0, "b")
    older = msgspec.msgpack.decode(actor.disk)
    ended = ["birth", "buried", "configurations"]
    assert [older.popitem()[0] for _ in ended] == ended, "at the end"
    opened = Catalog.from_bytes(msgspec.msgpack.encode(older), node="b", where="here")
    assert (opened.configurations, opened.buried) == ({}, {})


REPLICAS = {"fragment": "q/f", "owner": "a", "epoch": 1}
NOW = {"query": "q", "number": 1, "coordinator": "a", "voters": ("a", "b")}


@pytest.mark.parametrize(
    "wrong",
    [
        {"voters": ("a", "a")},
        {"voters": ()},
        {"voters": tuple(f"n{n}" for n in range(33))},
        {"number": 0},
        {"query": ""},
        {"coordinator": "x" * 256},
        {"fragments": [REPLICAS, REPLICAS]},
        {"fragments": [{**REPLICAS, "secondaries": ("a",)}]},
        {"fragments": [{**REPLICAS, "secondaries": ("b", "b")}]},
        {"fragments": [{**REPLICAS, "secondaries": tuple(f"n{n}" for n in range(17))}]},
        {"fragments": [{**REPLICAS, "epoch": 0}]},
        {"fragments": [{**REPLICAS, "fragment": f"{n:0250}"} for n in range(NAMES_BYTES_MAX // 250)]},
    ],
)
def test_what_is_no_configuration_is_not_read(wrong):
    def read(about):
        fragments = [tuple(each.values()) for each in about.pop("fragments", ())]
        values = (about["query"], about["number"], about["coordinator"], about["voters"], fragments)
        return msgspec.msgpack.decode(msgspec.msgpack.encode(values), type=Configuration)

    assert read({**NOW, "fragments": [{**REPLICAS, "secondaries": ("b",)}]}).replicas("q/f").owner == "a"
    with pytest.raises(msgspec.ValidationError):
        read({**NOW, **wrong})


def test_the_widest_configuration_fits_into_a_frame():
    from medusa.wire.codec import encode_frame
    from medusa.wire.messages.configuration import Proposal

    fragments = tuple(
        Replicas(fragment=f"{n:03}", owner="o" * 60, epoch=1 << 61, secondaries=("x", "y", "z"))
        for n in range(256)
    )
    wide = Configuration(
        query="q" * 255,
        number=1 << 61,
        coordinator="c" * 255,
        voters=tuple(f"{n:0200}" for n in range(32)),
        fragments=fragments,
        life=1 << 61,
    )
    ballot = Ballot(1 << 61, "n" * 255)
    about = {"request": 1 << 61, "query": wide.query, "number": wide.number, "ballot": ballot}
    vote = Vote(**about, text="t" * 2000, accepted=Proposal(ballot=ballot, configuration=wide))
    encode_frame(vote)


def test_majorities():
    sizes = {n: first(tuple(f"n{i}" for i in range(n)), secondaries=()).majority for n in (1, 2, 3, 4, 5)}
    assert sizes == {1: 1, 2: 2, 3: 2, 4: 3, 5: 3}


def test_status_names_who_is_waited_for():
    world = Calm()
    world.lose("c")
    world.actors["a"].crash()
    world.propose("b", takeover("b", 2))
    world.settle(2 * ASK_US)
    said = status(world, "b")
    assert (said.number, said.voters, said.coordinator) == (1, ("a", "b", "c"), "a")
    assert (said.proposing, said.silent) == ("accepting", ("a", "c"))


def test_only_who_was_told_a_configuration_answers_for_it():
    """Its number is seen by nodes of other participants too: one of them had the query removed everywhere."""
    calm = Calm()
    calm.lose("b")
    calm.propose("a", lambda now: msgspec.structs.replace(now, number=2) if now.number == 1 else None)
    calm.settle()
    agreement = calm.actors["a"].agreement
    request = agreement._announcements._telling[QUERY].request
    for peer in ("stranger", "a"):
        assert not agreement.answered(calm.now_us, peer, Reply(request=request, code="E_REMOVED"))
    assert agreement.untold(QUERY)
    assert agreement.answered(calm.now_us, "b", Reply(request=request))


def test_a_wish_with_more_names_than_fit_is_given_up_and_said_once():
    calm = Calm()

    def wider(current):
        names = tuple(f"{number}{'x' * 200}" for number in range(NAMES_BYTES_MAX // 200))
        [one, *others] = current.fragments
        fragments = (msgspec.structs.replace(one, streams=names), *others)
        return msgspec.structs.replace(current, number=current.number + 1, fragments=fragments)

    calm.propose("a", wider)
    calm.settle()
    assert calm.actors["a"].agreement.current(QUERY) == calm.begin


def test_who_keeps_a_decision_open_is_named_and_once_logged():
    world = Calm(5, first(tuple("abcde"), owner="a", secondaries=("b", "c")))
    for name in "cde":
        world.lose(name)
    b = world.actors["b"].agreement
    world.propose("b", takeover("b", 2))
    world.settle(500_000)
    assert b.waiting(world.now_us) == {}, "it may come"
    world.settle(7_000_000)
    waiting = b.waiting(world.now_us)[QUERY]
    assert waiting.silent == ("c", "d", "e")
    assert waiting.waits_for == "c (hasn't answered), d (hasn't answered), e (hasn't answered)"
    assert waiting.waits_us > 5_000_000
    assert world.actors["a"].agreement.waiting(world.now_us) == {}, "it wants nothing"
    said = [(name, each) for name, each in world.lines if each.what == "decision waits for other voters"]
    assert [(name, each.fields["waits_for"]) for name, each in said] == [("b", waiting.waits_for)]
    world.back("c")
    world.settle(3_000_000)
    assert world.number("b") == 2
    assert b.waiting(world.now_us) == {}
