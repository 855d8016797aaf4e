"""Load goes from an owner to another under a contract, and comes home; what is owed is the same at both."""

from __future__ import annotations

import pytest

from medusa.errors import RemoteProtocolError
from medusa.market.contract.terms import PlannedTask
from medusa.market.ledger.statement import load_statement
from medusa.nodes.config.settings_market import MarketPolicyRules
from medusa.nodes.market.market_words import TaskRows, TaskRowsHeard, encode_word, read_booked
from medusa.wire import limits
from medusa.wire.messages.commands import Reply
from medusa.wire.messages.market import Booked, Traded
from medusa.wire.messages.move import Move
from tests.nodes.keyed import Signer, verify
from tests.nodes.market.owners import FEDERATION, SECOND_US, WALL_US, Owners, contract, revoked, signed

PRICE_MICRO = 1_000_000
NANO_PER_ROW = 20_000_000


def two(*names, terms=None, **more):
    """Alice has four tasks of a fifth of a core each, bob has none."""
    world = Owners(*(names or ("alice", "bob")), **more)
    text = signed(terms or contract("bob", "alice"))
    for owner in ("alice", "bob"):
        world[owner].papers["c.contract"] = text
    for number in range(4):
        world.add("alice", f"q{number}/in")
    world.start()
    return world


def moved(**more):
    world = two(**more)
    assert world.run(60, until=lambda: world.guests_at("bob") == 2)
    world.run(5)
    return world


def paid_micro(world, owner):
    """What alice owes and has paid to bob, as one of them knows it."""
    found = world[owner].contract()
    return found.owed_micro + found.settled_micro


def rows_away(world):
    """Rows that came in at bob's and that alice has, of tasks that were there once."""
    home = [each for each in world.fragments.values() if each.came_home_at]
    return sum(each.came_home_at - each.begin_row for each in home)


def agrees(world):
    """Each fragment is in one place, both know where, and both know the same of what is owed, once what is
    under way has come."""
    world.run(1, until=lambda: paid_micro(world, "alice") == paid_micro(world, "bob"))
    away, guests = world["alice"].status().away, world["bob"].status().guests
    there = {name for name, each in world.fragments.items() if each.host == "bob-1"}
    assert {each.task for each in away} == {f"alice/{name}" for name in there}
    assert {each.task for each in guests} == {f"alice/{name}" for name in there}
    assert paid_micro(world, "alice") == paid_micro(world, "bob")
    assert [world[name].contract().disputes for name in ("alice", "bob")] == [0, 0]


def test_the_overloaded_one_sheds_until_it_is_worth_it_no_more():
    world = moved()
    world.run(60)
    assert (world.at_home("alice"), world.guests_at("bob")) == (2, 2)
    agrees(world)
    ours, theirs = world["alice"].status(), world["bob"].status()
    assert ours.handed_over == theirs.took == 2
    assert ours.came_home == theirs.gave_back == 0
    assert {each.price_micro for each in ours.away} == {PRICE_MICRO}, "the lowest of the range was enough"
    assert ours.used == theirs.used == pytest.approx(0.4)
    assert "a unit costs 0.00 EUR here" in ours.why_still


def test_rows_that_both_count_are_paid_once():
    world = moved()
    world.run(60)
    world["alice"].moves.why_not = dict.fromkeys(world.fragments, "it stays")
    for name in ("q0/in", "q1/in"):
        world["alice"].moves.recall(world.now_us, name)
    world.run(30)
    assert world.guests_at("bob") == 0
    agrees(world)
    rows = rows_away(world)
    assert rows > 1_000
    assert paid_micro(world, "alice") == rows * NANO_PER_ROW * PRICE_MICRO // 1_000_000_000
    assert world["alice"].contract().exposure_micro == world["bob"].contract().exposure_micro == 0


def test_each_books_what_the_other_books():
    world = moved()
    world.run(45)
    found = [world[name].contract() for name in ("alice", "bob")]
    assert found[0].settled_micro == found[1].settled_micro > 0
    assert found[0].receipts == found[1].receipts > 20
    assert (found[0].role, found[1].role) == ("consumer", "provider")
    for each in found:
        assert 0 <= each.exposure_micro <= each.exposure_most_micro


def statement(world, owner):
    """What the documents say that an owner has kept, who forgets all else."""
    found = world[owner].receipts.items()
    keys = {name: Signer(name).key for name in ("alice", "bob")}
    return load_statement(
        [data for data, kind in found if kind == "receipt"],
        [contract("bob", "alice")],
        federation=FEDERATION,
        keys=keys,
        verify=verify,
        settlements=[data for data, kind in found if kind == "settlement"],
    )


@pytest.mark.parametrize("dies", [False, True])
def test_receipts_alone_say_who_owes_whom(dies):
    world = moved()
    for name in ("alice", "bob") * dies:
        world.run(7.3)
        world[name].die()
        world[name].start()
    world.run(45)
    agrees(world)
    for name in ("alice", "bob"):
        found = statement(world, name)
        assert found.faults == ()
        known = world[name].contract()
        assert (found.owed_micro, found.settled_micro) == (known.owed_micro, known.settled_micro)
        assert (found.receipts, found.missing_micro) == (known.receipts, 0)
        assert found.amount_micro > 10_000_000


def test_a_host_that_dies_loses_its_guests_and_is_paid_for_what_its_owner_has():
    world = moved()
    world["bob"].die()
    assert world.run(10, until=lambda: world.at_home("alice") == 4)
    world.run(20)
    status = world["alice"].status()
    assert (status.lost, status.came_home, status.away) == (2, 2, ())
    before = paid_micro(world, "alice")
    world["alice"].moves.why_not = dict.fromkeys(world.fragments, "it stays")
    world["bob"].start()
    world.run(40)
    agrees(world)
    rows = rows_away(world)
    assert before < paid_micro(world, "alice") == rows * NANO_PER_ROW * PRICE_MICRO // 1_000_000_000
    assert world["bob"].contract().exposure_micro == 0


def test_what_is_owed_is_no_more_for_a_host_that_comes_back_and_takes_the_same_again():
    world = moved()
    world["bob"].die()
    world.run(10)
    world["bob"].start()
    world.run(60)
    assert world.guests_at("bob") == 2
    agrees(world)


def test_a_contract_that_ends_brings_all_home():
    world = two(terms=contract("bob", "alice", ends_us=WALL_US + 40 * SECOND_US))
    assert world.run(30, until=lambda: world.guests_at("bob") == 2)
    world.run(45 - world.now_us / SECOND_US)
    assert world.at_home("alice") == 4
    for name in ("alice", "bob"):
        assert not world[name].contract().in_force
        assert world[name].moves.permitted_out() == world[name].moves.permitted_in() == ()
    world.run(30)
    agrees(world)
    assert world["bob"].contract().exposure_micro == 0


@pytest.mark.parametrize("who", ["alice", "bob"])
def test_a_revocation_that_is_read_again_brings_all_home(who):
    world = moved()
    ends_us = WALL_US + world.now_us + 3 * SECOND_US
    world[who].papers["c.revoked"] = revoked(contract("bob", "alice"), who, ends_us)
    world[who].read_again()
    world.run(1)
    assert world.guests_at("bob") == 2, "its notice isn't over"
    world.run(10)
    assert world.at_home("alice") == 4
    other = "bob" if who == "alice" else "alice"
    world[other].papers |= world[who].papers
    world[other].read_again()
    world.run(30)
    agrees(world)


STEPS = [4.9 + 0.1 * step for step in range(16)] + [7.0, 8.0, 9.0, 11.0]


@pytest.mark.parametrize("who", ["alice", "bob"])
@pytest.mark.parametrize("away_s", [0.3, 6.0])
@pytest.mark.parametrize("at_s", STEPS)
def test_either_one_may_be_restarted_at_any_step(who, away_s, at_s):
    world = two()
    world.run(at_s)
    world[who].die()
    world.run(away_s)
    world[who].start()
    world.run(120)
    assert (world.at_home("alice"), world.guests_at("bob")) == (2, 2)
    agrees(world)
    for name in ("alice", "bob"):
        assert world[name].contract().stopped == ""


@pytest.mark.parametrize("at_s", [5.5, 6.0, 6.5, 10.0])
def test_a_partition_costs_no_more_than_two_intervals(at_s):
    world = two()
    world.run(at_s)
    world.part("alice", "bob")
    world.run(30)
    assert world.at_home("alice") == 4
    for name in ("alice", "bob"):
        found = world[name].contract()
        assert found.exposure_micro <= found.exposure_most_micro
    world.heal()
    world.run(120)
    assert world.guests_at("bob") == 2
    agrees(world)


def test_nothing_is_said_or_done_before_it_is_on_disk():
    world = two()
    world["alice"].disk_fails = True
    world.run(20)
    assert world.at_home("alice") == 4
    assert not any(name == "bob" and b"load_agreed" in payload for name, _, _, payload in world.said)
    world["alice"].disk_fails = False
    world.run(60)
    assert world.guests_at("bob") == 2
    agrees(world)


# --- who cheats ---------------------------------------------------------------------------------


def test_a_consumer_that_signs_nothing_gets_two_intervals():
    world = two()
    world.drops = lambda name, message, payload: name == "alice" and b"receipt_said" in payload
    assert world.run(30, until=lambda: world.guests_at("bob") == 2)
    world.run(12)
    assert world.at_home("alice") == 4
    found = world["bob"].contract()
    assert found.exposure_micro <= found.exposure_most_micro
    world.run(60)
    assert world.at_home("alice") == 4, "nothing is taken before that is signed"
    assert world["bob"].contract().stopped == "contract.unreceipted"


def test_a_consumer_that_doesnt_say_from_where_on_it_pays_gets_an_interval():
    world = two()
    world.drops = lambda name, message, payload: name == "alice" and b"task_rows" in payload
    assert world.run(30, until=lambda: world.guests_at("bob") == 2)
    world.run(6)
    assert world.at_home("alice") == 4


def test_a_task_that_begins_behind_what_has_come_in_is_refused():
    world = two()
    world.drops = lambda name, message, payload: name == "alice" and b"task_rows" in payload
    assert world.run(30, until=lambda: world.guests_at("bob") == 2)
    world.run(0.5)
    task = next(iter(world["alice"].status().away))
    lie = TaskRows(contract="c", negotiation=task.negotiation, task=task.task, begin_row=1 << 40)
    world.hear("alice", world["bob"], Booked(request=1), encode_word(lie))
    assert world["bob"].refused == {"E_BILLING": 1}
    assert world["bob"].status().guests[0].paid_row is None


# --- who may say what ---------------------------------------------------------------------------


def test_who_has_no_contract_is_told_so():
    world = two("alice", "bob", "mallory")
    word = encode_word(TaskRowsHeard(contract="c", negotiation=1, task="t"))
    world.hear("mallory", world["bob"], Booked(request=7), word)
    assert world["bob"].refused == {"E_NO_CONTRACT": 1}
    (peer, answer) = world.answers[-1]
    assert (peer, answer.request, answer.code) == ("mallory-1", 7, "E_NO_CONTRACT")
    assert "docs/market.md" in answer.hint


def test_another_node_of_a_partner_doesnt_trade():
    world = two()
    word = encode_word(TaskRowsHeard(contract="c", negotiation=1, task="t"))
    world.hear("alice", world["bob"], Booked(request=7), word, "alice-2")
    assert world["bob"].refused == {"E_ROLE": 1}


def test_a_refusal_is_shown():
    world = two()
    world.run(20)
    number = next(message.request for name, _, message, _ in reversed(world.said) if name == "alice")
    refusal = Reply(request=number, code="E_NO_CONTRACT", text="no contract with you")
    world.hear("bob", world["alice"], refusal, None)
    assert world["alice"].status().refused_by == {"bob": "E_NO_CONTRACT, no contract with you"}


@pytest.mark.parametrize("kind", [Traded, Booked])
@pytest.mark.parametrize("payload", [None, b"", b"\x93", b"\xc1", b"\x91\xa3abc", b"\x90", bytes(1_000)])
def test_what_is_no_word_ends_the_link_and_changes_nothing(kind, payload):
    world = moved()
    before = world["bob"].status()
    with pytest.raises(RemoteProtocolError) as caught:
        world.hear("alice", world["bob"], kind(request=1), payload)
    assert caught.value.code == "E_FRAME"
    assert world["bob"].status() == before


@pytest.mark.parametrize(
    ("kind", "most"), [(Traded, limits.TRADED_BYTES_MAX), (Booked, limits.BOOKED_BYTES_MAX)]
)
def test_what_is_too_long_isnt_read(kind, most):
    world = two()
    with pytest.raises(RemoteProtocolError) as caught:
        world.hear("alice", world["bob"], kind(request=1), bytes(most + 1))
    assert f"{most:,}" in caught.value.message


def test_a_word_that_breaks_a_rule_is_counted_and_the_link_stays():
    world = moved()
    said = [payload for name, _, _, payload in world.said if name == "bob"]
    reading = next(payload for payload in said if b"reading_said" in payload)
    world.hear("alice", world["bob"], Booked(request=1), reading)
    assert world["bob"].refused == {"E_ROLE": 1}
    assert read_booked("x", reading).contract == "c"
    world.run(20)
    agrees(world)


# --- what the owner wants -----------------------------------------------------------------------


def test_what_never_moves_stays_and_says_why():
    world = two(policy=MarketPolicyRules(never_move=("q0/*", "q1/*")))
    world.run(60)
    assert {name for name, each in world.fragments.items() if each.host == "bob-1"} == {"q2/in", "q3/in"}
    stays = world["alice"].status().stays
    assert set(stays) == {"q0/in", "q1/in"}
    assert "[market.policy]" in stays["q0/in"]


def test_what_cant_move_is_never_offered_and_says_why():
    world = two()
    world["alice"].moves.why_not = dict.fromkeys(world.fragments, "deploy it with standby=")
    world.run(60)
    assert world.at_home("alice") == 4
    assert set(world["alice"].status().stays.values()) == {"deploy it with standby="}
    assert not any(b"load_request" in payload for _, _, _, payload in world.said)


def test_a_node_that_only_watches_says_what_it_would_offer():
    world = two(shadow=True)
    world.run(60)
    assert world.at_home("alice") == 4
    status = world["alice"].status()
    assert [each.partner for each in status.planned] == ["bob"]
    assert status.why_still == "this node only watches"
    assert not any(b"load_request" in payload for _, _, _, payload in world.said)


@pytest.mark.parametrize(
    ("rules", "code", "why"),
    [
        ({"shadow": True}, "E_POLICY", "this node only watches"),
        ({"policy": MarketPolicyRules(never_move=("q0/*",))}, "E_POLICY", "[market.policy] of this node"),
        ({}, "", ""),
    ],
    ids=["watches", "never moves", "trades"],
)
def test_a_signal_moves_nothing_that_may_not_move(rules, code, why):
    planned = (PlannedTask(task="q0/in", price_micro=PRICE_MICRO),)
    world = two(terms=contract("bob", "alice", planned=planned), **rules)
    waits = []
    world["alice"].moves.await_move = lambda *about: waits.append(about[1:5])
    for each in world.fragments.values():
        each.rate = 1  # No load goes by itself.
    world.run(10)
    move = Move(request=1, fragment="q0/in", to="bob-1", timeout_ms=20_000)
    assert world["alice"].market.signal(world.now_us, "maker", move)
    world["alice"].perform()
    world.run(10)
    told = [answer for client, answer in world.answers if client == "maker"]
    assert [each.code for each in told] == [code] * bool(code)
    assert all(why in each.text for each in told)
    assert waits == [("q0/in", "bob-1", "maker", 1)] * (not code)
    assert world.guests_at("bob") == (not code)


def test_under_a_shadow_contract_nothing_moves_and_both_add_up():
    world = two(terms=contract("bob", "alice", shadow=True))
    world.run(60)
    assert world.at_home("alice") == 4
    for name in ("alice", "bob"):
        assert world[name].contract().virtual_micro > 0
        assert world[name].moves.permitted_out() == world[name].moves.permitted_in() == ()
    assert [each.virtual for each in world["alice"].status().away] == [True, True]


def test_contracts_that_dont_count_say_why():
    world = Owners("alice", "bob", "carol")
    late = contract("bob", "alice", id="late", latency_us=1_000)
    world["alice"].papers |= {
        "a.contract": "nothing",
        "b.contract": signed(contract("bob", "carol")),
        "c.contract": signed(contract("bob", "alice"), federation="other"),
        "d.contract": signed(late),
        "e.contract": signed(contract("bob", "alice", id="bytes", bytes_per_unit=1)),
        "f.revoked": revoked(contract("bob", "alice", id="none"), "bob", WALL_US),
    }
    world.start()
    refused = world["alice"].status().refused_papers
    for name, why in (
        ("a.contract", "no signed contract"),
        ("b.contract", "this is a node of 'alice'"),
        ("c.contract", "federation 'other'"),
        ("d.contract", "latency"),
        ("e.contract", "bytes_per_unit"),
        ("f.revoked", "no contract 'none'"),
    ):
        assert why in refused[name]
    assert world["alice"].status().contracts == ()


def test_load_that_goes_away_brings_tasks_home():
    world = moved()
    for name in ("q2/in", "q3/in"):
        world.fragments[name].rate = 1
    world.run(120)
    assert world.at_home("alice") == 4
    agrees(world)
    assert {each.code for each in world["alice"].status().decisions} >= {"E_RECALLED"}


@pytest.mark.parametrize("who", ["owner", "host"])
def test_a_number_of_rows_that_nobody_can_count_ends_no_node(who):
    """What a checkpoint, or a stream, of the other participant says it has."""
    world = moved()
    name = next(iter(world["bob"].moves.guests()))
    found = world.fragments[name]
    if who == "owner":
        found.home_row = (1 << 62) + 1
    else:
        found.row = (1 << 62) + 1
    world["alice"].moves.why_not = {name: "it stays"}
    assert world.run(20, until=lambda: found.host == "alice-1"), "it goes home"
    world.run(60)
    teller = world["alice" if who == "owner" else "bob"]
    (line,) = [each for each in teller.lines if "rows that can't be counted" in each]
    assert "end_row is 4,611,686,018,427,387,9" in line
    agrees(world)
    assert world["alice"].contract().receipts > 20, "the others are paid as before"


def test_three_owners_each_pay_whom_they_gave():
    world = Owners("alice", "bob", "carol")
    for provider in ("bob", "carol"):
        text = signed(contract(provider, "alice", id=f"with-{provider}", units_per_s_max_milli=250))
        for owner in ("alice", provider):
            world[owner].papers[f"{provider}.contract"] = text
    for number in range(4):
        world.add("alice", f"q{number}/in")
    world.start()
    world.run(90)
    assert (world.at_home("alice"), world.guests_at("bob"), world.guests_at("carol")) == (2, 1, 1)
    for provider in ("bob", "carol"):
        ours, theirs = (world[name].contract(f"with-{provider}") for name in ("alice", provider))
        assert ours.owed_micro + ours.settled_micro == theirs.owed_micro + theirs.settled_micro > 0
