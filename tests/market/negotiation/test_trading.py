"""What two or three traders do, step by step."""

from __future__ import annotations

import pytest

from medusa.market.cost import PiecewiseCost
from medusa.market.negotiation.messages import LoadAgreed, LoadEnded, LoadRequest, PriceSaid
from medusa.market.negotiation.policies import OwnersPolicy
from medusa.market.work import ResourceUse
from tests.market.negotiation.network import Network, S, Square, contract, task


def test_load_goes_until_a_unit_costs_both_the_price():
    """By hand: a bears 0.8 cores at 5 r^2, so that its last 0.1 costs 5 * 1.5 = 7.5 for a unit, the one
    before 6.5; b's first costs 0.5, then 1.5, then 2.5. At a price of 2 two go, and then b is full."""
    net = Network()
    net.join("a", Square(5e6), [task(f"a{n}", "a") for n in range(8)])
    net.join("b", Square(5e6))
    net.sign(contract("a", "b", 2_000_000))
    net.run(200 * S)
    assert [name for name, at in net.runs_at.items() if at == "b"] == ["a0", "a1"]
    assert (len(net.moves), net.broken, net.trades_left()) == (2, [], [])
    assert len(net.messages(LoadRequest)) < 12


def test_without_a_contract_nothing_moves():
    net = Network()
    net.join("a", Square(5e6), [task(f"a{n}", "a") for n in range(8)])
    net.join("b", Square(5e6))
    net.sign(contract("b", "a", 2_000_000))
    net.run(60 * S)
    assert net.moves == []
    assert "no contract" in net.members["a"].trader.status(net.now_us).why_still


def test_a_participant_at_its_threshold_takes_load_and_passes_a_task_of_its_own_on():
    """In a row, big tasks: the one in the middle bears 0.4 cores at 2.5 r^2, so that another 0.4 cost 3 for
    a unit, its own one saves 1. At prices from 1.2 to 2 neither is worth it; both together are."""
    net = Network()
    net.join("a", Square(10e6), [task(f"a{n}", "a", 0.4) for n in range(2)])
    net.join("b", Square(2.5e6), [task("b0", "b", 0.4)])
    net.join("c", Square(2.5e6))
    net.sign(contract("a", "b", 2_000_000, range_micro=800_000))
    net.sign(contract("b", "c", 2_000_000, range_micro=800_000))
    net.run(120 * S)
    assert not net.broken
    assert (net.runs_at["b0"], sorted(net.runs_at.values())) == ("c", ["a", "b", "c"])
    (_, _, _, _, paid), (_, _, _, _, earned) = net.moves
    assert 1_200_000 <= paid < earned <= 2_000_000
    assert net.books_agree() == []


def test_a_task_that_made_room_for_one_that_does_not_come_is_home_soon():
    """As above, but a has less load by the time when b0 has gone: b is at a loss for ``chain_us`` (10 s), a
    round and a move at most. It was 60 s, since b expected a for so long."""
    net = Network()
    net.join("a", Square(10e6), [task(f"a{n}", "a", 0.4) for n in range(2)])
    net.join("b", Square(2.5e6), [task("b0", "b", 0.4)])
    net.join("c", Square(2.5e6))
    net.sign(contract("a", "b", 2_000_000, range_micro=800_000))
    net.sign(contract("b", "c", 2_000_000, range_micro=800_000))
    while not net.moves:
        net.run(net.now_us + S // 10)
    assert net.runs_at["b0"] == "c"
    went_us = net.now_us
    for name in ("a0", "a1"):
        del net.tasks[name], net.runs_at[name]
    net.run(went_us + 15 * S)
    assert [(each[1], each[4]) for each in net.handed] == [("b0", "E_RECALLED")]
    assert net.handed[0][0] <= went_us + 12 * S
    assert (net.runs_at["b0"], net.books_agree(), net.broken) == ("b", [], [])


def test_while_one_is_expected_for_whom_room_was_made_no_other_chain_is_begun():
    """b bears 0.6 cores at 1.5 r^2. For a's 0.3 it passes b0 on, and a can't come. d's 0.8 would cost 2.1
    for a unit on top of b1; with b1 gone too it would be worth it. b1 stays, or b paid for both."""
    net = Network()
    net.join("a", Square(10e6), [task(f"a{n}", "a", 0.3) for n in range(2)])
    net.join("b", Square(1.5e6), [task(f"b{n}", "b", 0.3) for n in range(2)])
    net.join("c", Square(1.5e6))
    net.join("d", Square(10e6), [task("d0", "d", 0.8)])
    for consumer, provider in (("a", "b"), ("d", "b"), ("b", "c")):
        net.sign(contract(consumer, provider, 2_000_000, range_micro=600_000))
    while not net.moves:
        net.run(net.now_us + S // 1_000)
    went_us = net.now_us
    net.part("a", "b", told=False)
    net.run(went_us + 30 * S)
    assert [each[1] for each in net.moves] == ["b0"]
    asked = [each[0] for each in net.messages(LoadRequest) if each[1] == "d"]
    assert any(went_us < at_us < went_us + 10 * S for at_us in asked)
    assert {each[2] for each in net.messages(LoadEnded) if each[3].code == "E_PASSING_ON"} == {"a"}
    assert (net.runs_at["b0"], net.broken) == ("b", [])


def test_room_is_not_sold_for_less_than_what_is_paid_for_a_task_that_is_only_held():
    """By hand: b bears 0.8 cores at 2 r^2. b0 (0.3) saves 2.6 for a unit, and goes to c for 1.8. Then b1
    takes 0.2: b0 would cost 1.4 here, and is held for a minute. So would the 0.3 for which d pays 1.5; with
    that here b0 would cost 2.6, and stay away for 1.8 for good."""
    net = Network()
    net.join("b", Square(2e6), [task("b0", "b", 0.3), task("b1", "b", 0.5)])
    net.join("c", Square(1e6))
    net.join("d", Square(10e6), [task("d0", "d", 0.3)])
    net.sign(contract("b", "c", 1_800_000), contract("d", "b", 1_500_000))
    net.run(20 * S)
    assert (net.runs_at["b0"], net.runs_at["d0"]) == ("c", "d")
    net.tasks["b1"] = task("b1", "b", 0.2)
    net.run(100 * S)
    assert (net.runs_at["b0"], net.runs_at["d0"], net.broken) == ("b", "d", [])
    assert net.books_agree() == []


def test_who_hands_nothing_over_for_a_chain_expects_nobody():
    """c has no room after all: then b0 stays, and b says prices as before."""
    net = Network()
    net.join("a", Square(10e6), [task(f"a{n}", "a", 0.4) for n in range(2)])
    net.join("b", Square(2.5e6), [task("b0", "b", 0.4)])
    net.join("c", Square(2.5e6))
    net.sign(contract("a", "b", 2_000_000, range_micro=800_000))
    net.sign(contract("b", "c", 2_000_000, range_micro=800_000))
    while not any(each[1] == "b" for each in net.messages(LoadRequest)):
        net.run(net.now_us + S // 100)
    net.tasks["c0"], net.runs_at["c0"] = task("c0", "c", 0.5), "c"
    net.measure("c")
    net.run(net.now_us + 5 * S)
    assert (net.moves, net.runs_at["b0"]) == ([], "b")
    said = [each[3] for each in net.messages(PriceSaid) if each[1] == "b"]
    assert said[-1].units_per_s_milli == 0


@pytest.mark.parametrize("told", [True, False])
@pytest.mark.parametrize("cuts", [1, 3])
def test_honest_partners_trade_again_soon_after_a_cut(told: bool, cuts: int):
    """Each time room was kept for what couldn't come. Told that the cut is over, b forgives at once; else a
    rests for 96 s at most (``backoff_max_us`` and half of it), and b for 8 s, doubled with each time."""
    net = Network()
    net.join("a", Square(5e6), [task(f"a{n}", "a") for n in range(8)])
    net.join("b", Square(5e6))
    net.sign(contract("a", "b", 2_000_000))
    for cut in range(cuts):
        while len({each[3].negotiation for each in net.messages(LoadAgreed)}) == cut:
            net.run(net.now_us + S // 1_000)
        net.part("a", "b", told=told)
        net.run(net.now_us + 60 * S)
        assert net.moves == []
        net.heal("a", "b", told=told)
    bound_s = 20 if told else 96 + 12 * 2**cuts
    net.run(net.now_us + bound_s * S)
    assert at(net, "b") == ["a0", "a1"]
    assert net.books_agree() == []


def away(**more: object) -> Network:
    """a has a0 and a1 away at b."""
    net = Network()
    net.join("a", Square(5e6), [task(f"a{n}", "a") for n in range(8)], hold_us=20 * S)
    net.join("b", Square(5e6), hold_us=20 * S)
    net.sign(contract("a", "b", 2_000_000, **more))
    net.run(15 * S)
    assert at(net, "b") == ["a0", "a1"]
    return net


def at(net: Network, name: str) -> list[str]:
    return [each for each, where in net.runs_at.items() if where == name]


def codes(net: Network) -> set[str]:
    return {each[4] for each in net.handed}


def test_what_runs_by_a_contract_comes_home_when_it_ends():
    net = away(ends_us=40 * S)
    net.run(39 * S)
    assert at(net, "b") == ["a0", "a1"]
    net.run(50 * S)
    assert (at(net, "b"), codes(net)) == ([], {"E_ENDED"})
    assert net.books_agree() == []
    net.run(100 * S)
    assert len(net.moves) == 2


@pytest.mark.parametrize("who", [("a",), ("b",), ("a", "b")])
def test_what_runs_by_a_contract_comes_home_when_it_is_revoked(who):
    """By either party, also where the other one hasn't heard of it."""
    net = away()
    for name in who:
        other = "b" if name == "a" else "a"
        net.members[name].trader.revoke(net.now_us, "a-b", other)
        net._look(name)
    net.run(30 * S)
    assert (at(net, "b"), codes(net)) == ([], {"E_ENDED"})
    assert net.books_agree() == []


@pytest.mark.parametrize(("price", "stays"), [(2_500_000, True), (1_500_000, False)])
def test_a_newer_version_keeps_what_it_allows_at_its_price(price, stays):
    net = away()
    net.sign(contract("a", "b", price, range_micro=600_000, version=2, begins_us=net.now_us))
    net.run(25 * S)
    assert (at(net, "b") == ["a0", "a1"]) == stays
    net.run(200 * S)
    assert net.books_agree() == []
    assert not net.trades_left()


def test_what_runs_by_a_version_stays_until_the_next_one_begins_that_does_not_allow_it():
    """Signed at 20 s, the cheaper version begins at 60 s: until then nothing changes."""
    net = away()
    there = at(net, "b")
    net.sign(contract("a", "b", 1_500_000, range_micro=600_000, version=2, begins_us=60 * S))
    before = {each.version: each.in_force for each in net.members["a"].trader.status(net.now_us).contracts}
    assert before == {1: True, 2: False}
    net.run(59 * S)
    assert (at(net, "b"), codes(net)) == (there, set())
    net.run(65 * S)
    assert codes(net) == {"E_ENDED"}
    assert not set(at(net, "b")) & set(there)
    after = {each.version: each.in_force for each in net.members["a"].trader.status(net.now_us).contracts}
    assert after == {2: True}
    net.run(200 * S)
    assert net.books_agree() == []
    assert not net.trades_left()


def test_what_runs_by_a_contract_stays_for_its_notice():
    net = away(notice_s=30)
    there = at(net, "b")
    for name, other in (("a", "b"), ("b", "a")):
        net.members[name].trader.revoke(net.now_us, "a-b", other)
    net.run(net.now_us + 29 * S)
    assert (at(net, "b"), codes(net)) == (there, set())
    net.run(net.now_us + 10 * S)
    assert (at(net, "b"), codes(net)) == ([], {"E_ENDED"})
    assert net.books_agree() == []


def test_a_task_comes_home_once_it_is_cheaper_there_and_was_held_long_enough():
    net = away()
    for n in range(2, 8):
        del net.tasks[f"a{n}"], net.runs_at[f"a{n}"]
    net.run(20 * S)
    assert at(net, "b") == ["a0", "a1"]
    net.run(60 * S)
    assert (at(net, "b"), codes(net)) == ([], {"E_RECALLED"})
    assert net.books_agree() == []


def test_a_guest_goes_back_once_it_costs_more_than_it_earns():
    """b gets load of its own: the last guest goes first."""
    net = away()
    net.tasks["b0"], net.runs_at["b0"] = task("b0", "b", 0.1), "b"
    first, last = (each[1] for each in net.moves)
    net.run(60 * S)
    assert (at(net, "b"), codes(net)) == ([first, "b0"], {"E_LOSS"})
    assert (net.handed[0][0] > 20 * S, net.handed[0][1]) == (True, last)
    net.run(200 * S)
    assert (at(net, "b"), len(net.moves)) == ([first, "b0"], 2)


def test_a_guest_stays_beside_one_that_came_later_and_pays_more():
    """By hand: a0 alone costs b 0.25 for a unit, and a pays 0.5. c0 costs 1 beside it, and c pays 2; beside
    c0, a0 would cost 1.25."""
    net = Network()
    net.join("a", Square(5e6), [task("a0", "a", 0.05), task("a1", "a", 0.2)], hold_us=S)
    net.join("b", Square(5e6), hold_us=S)
    net.join("c", Square(50e6), [task("c0", "c", 0.1)])
    net.sign(contract("a", "b", 500_000))
    net.run(20 * S)
    assert at(net, "b") == ["a0"]
    net.sign(contract("c", "b", 2_000_000))
    net.run(100 * S)
    assert (at(net, "b"), net.handed) == (["a0", "c0"], [])


def test_guests_go_at_once_where_the_capacity_is_exceeded():
    net = Network()
    net.join("a", Square(5e6), [task(f"a{n}", "a") for n in range(8)])
    net.join("b", Square(5e6), capacity=ResourceUse(cpu_cores=0.25))
    net.sign(contract("a", "b", 2_000_000))
    net.run(15 * S)
    net.tasks["b0"], net.runs_at["b0"] = task("b0", "b", 0.2), "b"
    net.run(25 * S)
    assert (at(net, "b"), codes(net)) == (["b0"], {"E_FULL"})


def test_a_task_that_takes_more_than_was_said_goes_back_and_its_consumer_rests():
    net = Network()
    net.slowness = {"a0": 1.5}
    net.join("a", Square(5e6), [task(f"a{n}", "a") for n in range(8)])
    net.join("b", Square(5e6), tolerance_ppm=200_000, settle_us=5 * S)
    net.sign(contract("a", "b", 2_000_000))
    net.run(20 * S)
    assert [(each[1], each[4]) for each in net.handed] == [("a0", "E_UNDERSTATED")]
    net.run(25 * S)
    refused = [each[3].code for each in net.messages(LoadEnded) if each[1] == "b" and not each[3].tasks]
    assert "E_UNDERSTATED" in refused
    assert net.books_agree() == []


def test_a_guest_that_is_measured_low_at_first_leaves_no_room_for_another():
    """Just after it came little may have flown: room that was promised to it isn't sold twice. Later what is
    measured counts."""
    net = Network()
    net.join("a", Square(5e6), [task(f"a{n}", "a", 0.2) for n in range(4)])
    # Up to a quarter of a core costs it nothing, so that one of these fits and two don't.
    net.join("b", PiecewiseCost(cpu=[(0, 0), (0.25, 0), (10, 10**9)]), settle_us=20 * S)
    net.slowness = {f"a{n}": 0.1 for n in range(4)}
    net.sign(contract("a", "b", 1_000_000))
    net.run(15 * S)
    assert len(at(net, "b")) == 1
    net.run(60 * S)
    assert len(at(net, "b")) > 1


def test_within_the_tolerance_it_stays():
    net = Network()
    net.slowness = {"a0": 1.15}
    net.join("a", Square(5e6), [task(f"a{n}", "a") for n in range(8)])
    net.join("b", Square(5e6), tolerance_ppm=200_000, settle_us=5 * S)
    net.sign(contract("a", "b", 2_000_000))
    net.run(60 * S)
    assert (at(net, "b"), net.handed) == (["a0", "a1"], [])


def test_more_than_the_limit_of_a_contract_never_stays():
    """Its rows doubled: what was 0.2 units a second is 0.4, and 0.3 are allowed."""
    net = away(units_per_s_max_milli=300)
    for name in ("a0", "a1"):
        net.tasks[name] = task(name, "a", 0.1, rows_per_s=2_000)
    net.run(25 * S)
    assert (len(at(net, "b")), codes(net)) == (1, {"E_OVER_LIMIT"})


def test_after_its_provider_died_a_task_is_away_until_the_driver_says_otherwise():
    net = away()
    net.stop("b")
    net.run(300 * S)
    status = net.members["a"].trader.status(net.now_us)
    assert ([each.name for each in status.away], status.open) == (["a1", "a0"], ())
    assert len(net.talk()) == len([each for each in net.talk() if each[0] < 16 * S])
    net.runs_at.update(a0="a", a1="a")  # it runs them at home again
    net.run(302 * S)
    assert net.members["a"].trader.status(net.now_us).away == ()
    net.go_on("b")
    net.run(310 * S)
    assert net.books_agree() == []


def test_a_partner_that_does_not_answer_is_asked_ever_more_rarely():
    net = Network()
    net.join("a", Square(5e6), [task(f"a{n}", "a") for n in range(8)])
    net.join("b", Square(5e6))
    net.sign(contract("a", "b", 2_000_000))
    net.part("a", "b", told=False)
    net.run(2_000 * S)
    asked = sorted({each[3].negotiation for each in net.messages(LoadRequest)})
    assert len(asked) < 40
    assert asked[-1] - asked[-2] > 60 * S
    net.heal("a", "b")
    net.run(2_060 * S)
    assert at(net, "b") == ["a0", "a1"]


def test_who_was_refused_asks_again_once_there_is_room_for_what_was_refused():
    """Room grows little by little: the first of it is too small for the task, and the rest after a refusal
    has become a long one by then."""
    net = Network()
    net.join(
        "a", PiecewiseCost(cpu=[(0, 0), (0.4, 0), (10, 10**8)]), [task(f"a{n}", "a", 0.2) for n in range(3)]
    )
    net.join("b", PiecewiseCost(cpu=[(0, 0), (1.0, 0), (10, 10**8)]), [task("b0", "b", 1.2)])
    net.sign(contract("a", "b", 1_000_000))
    net.run(30 * S)
    assert net.moves == []
    for step in range(100):
        net.tasks["b0"] = task("b0", "b", 1.1 - step / 400)
        net.run(net.now_us + S)
    assert net.moves == []
    net.tasks["b0"] = task("b0", "b", 0.75)
    net.run(net.now_us + 15 * S)  # A heartbeat and a half.
    assert [each[1:4] for each in net.moves] == [("a0", "a", "b")]


def test_one_that_is_known_to_be_away_is_not_asked():
    net = Network()
    net.join("a", Square(5e6), [task(f"a{n}", "a") for n in range(8)])
    net.join("b", Square(5e6))
    net.sign(contract("a", "b", 2_000_000))
    net.part("a", "b")
    net.run(100 * S)
    assert net.messages(LoadRequest) == []
    why = "\n".join(net.members["a"].trader.explain(net.now_us, partner="b"))
    assert "a0 isn't offered to b (a-b): the partner isn't reached" in why


def test_a_guest_goes_on_only_where_its_owners_contract_allows_it():
    for resale, further, gone in (
        ((), (), False),
        (("c",), (), True),
        (("*",), ("*",), True),
        (("c",), ("d",), False),
    ):
        net = Network()
        net.join("a", Square(5e6), [task(f"a{n}", "a", 0.2) for n in range(4)], hold_us=S)
        net.join("b", Square(5e6), hold_us=S)
        net.join("c", Square(1e6))
        net.sign(contract("a", "b", 2_000_000, resale=resale), contract("b", "c", 500_000, resale=further))
        net.run(60 * S)
        assert (len(at(net, "c")) > 0) == gone, resale
        assert not net.broken
        assert net.books_agree() == []


def test_what_was_passed_on_comes_home_by_the_way_it_went():
    net = Network()
    net.join("a", Square(5e6), [task(f"a{n}", "a", 0.2) for n in range(4)], hold_us=S)
    net.join("b", Square(5e6), hold_us=S)
    net.join("c", Square(1e6))
    net.sign(contract("a", "b", 2_000_000, resale=("c",), ends_us=100 * S), contract("b", "c", 500_000))
    net.run(90 * S)
    assert at(net, "c")
    net.run(130 * S)
    assert (at(net, "a"), net.books_agree()) == (["a0", "a1", "a2", "a3"], [])
    assert [each[2] for each in net.handed if each[0] >= 100 * S][-2:] == ["c", "b"]


@pytest.mark.parametrize("ends", ["a", "b"])
def test_a_shadow_moves_nothing_and_says_what_would_have_been_paid(ends):
    """As the first test: two tasks of 0.1 units a second each would go, at 2 a unit: 0.4 a second."""
    net = Network()
    net.join("a", Square(5e6), [task(f"a{n}", "a") for n in range(8)])
    net.join("b", Square(5e6))
    net.sign(contract("a", "b", 2_000_000, shadow=True))
    net.run(101 * S)
    assert (net.moves, net.handed, at(net, "b"), net.broken) == ([], [], [], [])
    status = {name: net.members[name].trader.status(net.now_us) for name in "ab"}
    assert sorted(each.name for each in status["a"].away if each.virtual) == ["a0", "a1"]
    for each in status.values():
        assert 96 * 400_000 < each.contracts[0].virtual_micro <= 100 * 400_000
    net.members[ends].trader.revoke(net.now_us, "a-b", "b" if ends == "a" else "a")
    net._look(ends)
    net.run(110 * S)
    status = {name: net.members[name].trader.status(net.now_us) for name in "ab"}
    assert status["a"].away == status["b"].guests == ()


def test_a_shadow_beside_a_contract_changes_nothing_of_what_moves():
    def moved(*more: object) -> list[str]:
        net = Network()
        net.join("a", Square(5e6), [task(f"a{n}", "a") for n in range(8)])
        for name in "bc":
            net.join(name, Square(5e6))
        net.sign(contract("a", "b", 2_000_000), *more)
        net.run(60 * S)
        return at(net, "b")

    assert moved(contract("a", "c", 1_000_000, shadow=True)) == moved() == ["a0", "a1"]


def test_an_owners_policy_is_kept_to():
    net = Network()
    policy = OwnersPolicy(prefer=("c",), avoid=("d",), shed_first=("a7", "a6"), never_move=("a5",))
    net.join("a", Square(5e6), [task(f"a{n}", "a") for n in range(8)], policy=policy)
    for name in "bcd":
        net.join(name, Square(5e6))
    net.sign(contract("a", "b", 1_000_000), contract("a", "c", 2_000_000), contract("a", "d", 900_000))
    net.run(100 * S)
    assert (at(net, "c"), at(net, "d")) == (["a6", "a7"], [])
    assert at(net, "b") == ["a0"]
    assert "a5" in at(net, "a")


def test_a_dry_run_says_what_would_move_and_changes_nothing():
    net = Network()
    net.join("a", Square(5e6), [task(f"a{n}", "a") for n in range(8)])
    net.join("b", Square(5e6))
    net.sign(contract("a", "b", 2_000_000))
    net.measure("a")
    before = net.members["a"].trader.status(net.now_us)
    plans, why_not = net.members["a"].trader.dry_run(net.now_us)
    assert [(each.partner, each.price_micro) for each in plans] == [("b", 2_000_000)]
    assert plans[0].tasks[:6] == tuple(f"a{n}" for n in range(6))
    # By hand: 5 * (0.8^2 - 0.2^2) saved for six tasks, less 0.6 units at 2.
    assert plans[0].saved_micro_per_s == pytest.approx(1_800_000)
    assert net.members["a"].trader.status(net.now_us) == before
    assert net.messages(LoadRequest) == []
    assert all(each.code for each in why_not)


def test_explain_tells_where_a_task_is_how_it_came_there_and_why_another_stays():
    net = away()
    told = list(net.members["a"].trader.explain(net.now_us, "a0"))
    assert told[0].startswith("a0 is away at b for ")
    assert told[0].endswith(", by contract a-b at 2.00 EUR a unit")
    steps = [line.split(": ")[1] for line in told[1:]]
    assert steps == ["asked", "agreed", "moved", "runs"]
    assert all("a0" in line and "(b) at 2.00" in line for line in told[1:])
    stays = list(net.members["a"].trader.explain(net.now_us, "a7"))
    assert stays[-1].startswith("a7 isn't offered to b (a-b): ")
    host = list(net.members["b"].trader.explain(net.now_us, "a0"))
    assert host[0].startswith("a0 is a guest of a for ")


def test_why_nothing_moves_is_one_sentence():
    net = away()
    net.run(30 * S)
    why = net.members["a"].trader.status(net.now_us).why_still
    assert why.startswith("a2, a3, a4 and 3 more: it has said that it has no room")
    net.members["b"].trader.revoke(net.now_us, "a-b", "a")
    assert net.members["b"].trader.status(net.now_us).why_still == "there is no contract by which load may go"


def test_a_restart_forgets_no_task_and_no_number():
    net = away()
    before = {name: net.members[name].trader.status(net.now_us) for name in "ab"}
    for name in "ab":
        net.lose_memory(name)
    net.run(net.now_us + 5 * S)
    after = {name: net.members[name].trader.status(net.now_us) for name in "ab"}
    assert [each.name for each in after["a"].away] == [each.name for each in before["a"].away]
    assert [each.name for each in after["b"].guests] == [each.name for each in before["b"].guests]
    assert (net.books_agree(), net.handed) == ([], [])
    net.join("c", Square(5e6))
    net.sign(contract("a", "c", 2_000_000))
    net.run(net.now_us + 30 * S)
    assert len(at(net, "c")) == 2
    numbers = [each[3].negotiation for each in net.messages(LoadRequest)]
    assert len(set(numbers)) > 1
    assert sorted(numbers) == numbers


@pytest.mark.parametrize(("price", "stays"), [(2_500_000, True), (1_500_000, False)])
def test_a_version_that_begins_while_both_are_down_keeps_what_it_allows(price, stays):
    net = away()
    there = at(net, "b")
    newer = contract("a", "b", price, range_micro=600_000, version=2, begins_us=net.now_us)
    net.versions[newer.id, 2] = net.contracts["a", "b"] = newer
    for name in "ab":
        net.members[name].contracts.append(newer)
        net.lose_memory(name)
    net.run(net.now_us + 10 * S)
    assert (at(net, "b") == there) == stays
    assert codes(net) == (set() if stays else {"E_ENDED"})


@pytest.mark.parametrize("counts", [True, False])
def test_a_task_that_is_away_comes_home_once_so_little_comes_to_it_that_there_is_room(counts):
    """By hand: a bears 0.6 cores at 5 r^2, so that the last 0.3 cost 4.5 for a unit, and go to b for 3.5. On
    top of the other 0.3, which cost 1.5, a tenth of that would cost 3.15, which is less. Who doesn't count
    rows reckons with all of it, for good."""
    net = Network()
    net.counts_away = counts
    net.join("a", Square(5e6), [task(f"a{n}", "a", 0.3) for n in range(2)])
    net.join("b", Square(0.5e6))
    net.sign(contract("a", "b", 3_500_000))
    net.run(20 * S)
    away = next(name for name, at in net.runs_at.items() if at == "b")
    assert len(net.moves) == 1
    net.tasks[away] = task(away, "a", 0.3, rows_per_s=100)
    net.run(120 * S)
    assert net.runs_at[away] == ("a" if counts else "b")
    assert (net.books_agree(), net.broken) == ([], [])
