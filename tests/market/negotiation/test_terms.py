"""What a contract doesn't allow is refused by name, and nothing has changed then."""

from __future__ import annotations

import pytest

from medusa.errors import ContractError, LocalProtocolError, RemoteProtocolError
from medusa.market.contract.terms import TaskTerms
from medusa.market.negotiation.messages import (
    LoadAccepted,
    LoadAgreed,
    LoadEnded,
    LoadMoved,
    LoadOffer,
    LoadRequest,
    LoadRuns,
    PriceSaid,
)
from medusa.market.negotiation.reasons import TradeReason, reason_text
from medusa.market.work import ResourceUse, TradedTask
from tests.market.negotiation.network import Network, S, Square, contract, task

CAPPED = {"settlement_s": 1, "interval_s": 1, "units_per_s_max_milli": 100}
"""Room for one task: a cap is at least what that costs in an interval at the lowest price."""


def provider(**more: object) -> Network:
    """b, idle, who has a contract with a. What it says is lost."""
    net = Network()
    net.join("a", Square(1e6))
    net.join("b", Square(1e6), capacity=ResourceUse(cpu_cores=1.0))
    net.sign(contract("a", "b", 1_000_000, range_micro=500_000, **more))
    net.run(2 * S)
    net.part("a", "b", told=False)
    return net


def request(*tasks: TradedTask, **more: object) -> LoadRequest:
    given: dict[str, object] = {
        "contract": "a-b",
        "version": 1,
        "negotiation": 7,
        "tasks": tasks or (task("a0", "a"),),
        "price_micro": 1_000_000,
        "within_us": 2 * S,
        **more,
    }
    return LoadRequest(**given)


def answer(net: Network, message: object, *, to: str = "b", of: str = "a") -> object:
    """What it says to this, heartbeats left out."""
    before = len(net.talk())
    net.tasks.update({each.name: each for each in getattr(message, "tasks", ())})
    net.members[to].trader.receive(net.now_us, of, message)
    net._look(to)
    net.run(net.now_us + 2 * S)
    said = [each[3] for each in net.talk()[before:] if each[1] == to]
    return said[0] if said else None


@pytest.mark.parametrize(
    ("terms", "asked", "code"),
    [
        ({}, {"contract": "other"}, "E_NO_CONTRACT"),
        ({}, {"version": 2}, "E_NO_CONTRACT"),
        ({"ends_us": S, "interval_s": 1}, {}, "E_NO_CONTRACT"),
        ({"begins_us": 100 * S}, {}, "E_NO_CONTRACT"),
        ({}, {"price_micro": 1_000_001}, "E_PRICE"),
        ({}, {"price_micro": 499_999}, "E_PRICE"),
        ({"units_per_s_max_milli": 99}, {}, "E_OVER_LIMIT"),
        ({}, {"tasks": (TradedTask(name="a0", owner="a"),)}, "E_OVER_LIMIT"),
        ({"tasks": TaskTerms(definitions=("fast",))}, {}, "E_TASK_NOT_ALLOWED"),
        (
            {"tasks": TaskTerms(definitions=("fast",))},
            {"tasks": (task("a0", "a", kind="slow"),)},
            "E_TASK_NOT_ALLOWED",
        ),
        ({}, {"tasks": (task("b0", "b"),)}, "E_TASK_NOT_ALLOWED"),
        ({}, {"tasks": (task("a0", "a", 1.1),)}, "E_FULL"),
        ({"cap_micro": 80_000, **CAPPED}, {}, "E_CAP"),
        ({}, {"tasks": (task("a0", "a", 1.0),)}, "E_TOO_DEAR"),
    ],
)
def test_what_a_contract_does_not_allow_is_refused_by_name(terms, asked, code):
    net = provider(**terms)
    said = answer(net, request(**asked))
    assert isinstance(said, LoadEnded)
    assert (said.code, said.negotiation) == (code, 7)
    assert said.text == reason_text(code) != code
    status = net.members["b"].trader.status(net.now_us)
    assert (status.guests, status.serving) == ((), ())


@pytest.mark.parametrize(
    "terms", [{}, {"tasks": TaskTerms(definitions=("fast",))}, {"cap_micro": 100_000, **CAPPED}]
)
def test_what_it_allows_is_agreed_and_room_is_kept(terms):
    net = provider(**terms)
    said = answer(net, request(task("a0", "a", kind="fast")))
    assert isinstance(said, LoadAgreed)
    assert (said.tasks, said.nano_units_per_row) == (("a0",), (100_000,))
    trader = net.members["b"].trader
    assert trader.admits(net.now_us, "a", 7, "a0") is None
    assert trader.admits(net.now_us, "a", 7, "a1") is TradeReason.TASK_NOT_ALLOWED
    assert trader.admits(net.now_us, "a", 8, "a0") is TradeReason.LATE
    assert trader.admits(net.now_us + 31 * S, "a", 7, "a0") is TradeReason.LATE


def test_room_that_is_kept_counts_against_the_cap():
    """Each task costs 100,000 micro-units a second: the first of them has the whole cap."""
    net = Network()
    net.join("a", Square(1e6))
    net.join("b", Square(1e6), moves_max=2)
    capped = {"cap_micro": 199_999, "settlement_s": 1, "interval_s": 1, "units_per_s_max_milli": 300}
    net.sign(contract("a", "b", 1_000_000, range_micro=500_000, **capped))
    net.run(2 * S)
    net.part("a", "b", told=False)
    assert isinstance(answer(net, request(task("a0", "a"))), LoadAgreed)
    assert answer(net, request(task("a1", "a"), negotiation=8)).code == "E_CAP"


def test_an_offer_that_is_accepted_does_not_count_twice_against_the_cap():
    net = provider(cap_micro=800_000, settlement_s=1, interval_s=1, units_per_s_max_milli=800)
    offer = answer(net, request(task("a0", "a", 0.7), price_micro=500_000))
    assert isinstance(offer, LoadOffer)
    accepted = LoadAccepted(
        contract="a-b", version=1, negotiation=7, tasks=offer.tasks, price_micro=offer.price_micro
    )
    net.members["b"].trader.receive(net.now_us, "a", accepted)
    net._look("b")
    net.run(net.now_us + S)
    assert [each[3].tasks for each in net.messages(LoadAgreed)] == [("a0",)]


def test_room_is_free_again_once_its_time_is_over():
    net = provider()
    assert isinstance(answer(net, request(task("a0", "a", 0.8))), LoadAgreed)
    net.run(net.now_us + 20 * S)
    assert answer(net, request(task("a1", "a", 0.3), negotiation=8)).code == "E_BUSY"
    net.run(net.now_us + 11 * S)
    assert net.messages(LoadEnded)[-1][3].code == "E_TIMEOUT"
    # Who asked and didn't come rests for a while.
    assert answer(net, request(task("a1", "a", 0.3), negotiation=9)).code == "E_BUSY"
    net.run(net.now_us + 20 * S)
    assert isinstance(answer(net, request(task("a1", "a", 0.3), negotiation=10)), LoadAgreed)


def test_a_request_that_comes_again_has_the_effect_of_one():
    net = provider()
    first = answer(net, request())
    assert isinstance(first, LoadAgreed)
    again = answer(net, request())
    assert (again.tasks, again.price_micro) == (first.tasks, first.price_micro)
    assert len(net.members["b"].trader.status(net.now_us).serving) == 1
    net.members["b"].trader.receive(
        net.now_us, "a", LoadEnded(contract="a-b", version=1, negotiation=7, code="E_WITHDRAWN")
    )
    said = answer(net, request())
    assert isinstance(said, LoadEnded)
    assert said.code == "E_WITHDRAWN"
    assert net.members["b"].trader.status(net.now_us).serving == ()


def test_an_end_that_comes_before_its_request_counts():
    net = provider()
    net.members["b"].trader.receive(
        net.now_us, "a", LoadEnded(contract="a-b", version=1, negotiation=7, code="E_TIMEOUT")
    )
    assert answer(net, request()).code == "E_TIMEOUT"


def test_the_best_paid_is_answered_first():
    """Two come within a moment; there is room for one."""
    net = Network()
    for name in "abc":
        net.join(name, Square(1e6))
    net.sign(contract("a", "b", 500_000, id="x"), contract("c", "b", 600_000, id="y"))
    net.run(2 * S)
    net.part("a", "b", told=False)
    net.part("c", "b", told=False)
    trader = net.members["b"].trader
    net.tasks.update(a0=task("a0", "a", 0.4), c0=task("c0", "c", 0.4))
    trader.receive(net.now_us, "a", request(task("a0", "a", 0.4), contract="x", price_micro=500_000))
    trader.receive(net.now_us, "c", request(task("c0", "c", 0.4), contract="y", price_micro=600_000))
    net._look("b")
    net.run(net.now_us + S // 10)
    assert [(each[2], each[3].tasks) for each in net.messages(LoadAgreed)] == [("c", ("c0",))]


def test_an_offer_dearer_than_asked_is_answered_with_a_price_in_the_range():
    net = provider()
    said = answer(net, request(task("a0", "a", 0.8), price_micro=500_000))
    assert isinstance(said, LoadOffer)
    assert 800_000 < said.price_micro <= 1_000_000


# --- what breaks a rule -------------------------------------------------------------------------------


def asking() -> tuple[Network, LoadRequest]:
    """a, which has just asked b, to which nothing gets through."""
    net = Network()
    net.join("a", Square(10e6), [task(f"a{n}", "a") for n in range(5)])
    net.join("b", Square(1e6))
    net.sign(contract("a", "b", 1_000_000, range_micro=500_000))
    net.part("a", "b", told=False)
    while not net.messages(LoadRequest):
        net.run(net.now_us + S // 10)
    return net, net.messages(LoadRequest)[0][3]


WRONG = [
    ("offer", {"price_micro": 499_999}, "E_PRICE"),
    ("offer", {"price_micro": 1_000_001}, "E_PRICE"),
    ("offer", {"tasks": ("b7",)}, "E_TASK_NOT_ALLOWED"),
    ("offer", {"tasks": ()}, "E_PRICE"),
    ("agreed", {"price_micro": 500_001}, "E_PRICE"),
    ("agreed", {"nano_units_per_row": (100_001,)}, "E_PRICE"),
    ("agreed", {"nano_units_per_row": ()}, "E_PRICE"),
    ("agreed", {"tasks": ("a0", "a0"), "nano_units_per_row": (100_000, 100_000)}, "E_TASK_NOT_ALLOWED"),
    ("agreed", {"contract": "other"}, "E_NO_CONTRACT"),
    ("runs", {}, "E_LATE"),
    ("price", {"price_micro": 499_999}, "E_PRICE"),
    ("price", {"price_micro": 1_000_001}, "E_PRICE"),
]


@pytest.mark.parametrize(("kind", "wrong", "code"), WRONG)
def test_a_provider_that_breaks_a_rule_changes_nothing(kind, wrong, code):
    net, asked = asking()
    trader = net.members["a"].trader
    before = trader.status(net.now_us)
    given = {"contract": "a-b", "version": 1, "negotiation": asked.negotiation, "tasks": ("a0",)} | wrong
    if kind == "offer":
        message = LoadOffer(**{"price_micro": 600_000, "within_us": S} | given)
    elif kind == "agreed":
        more = {"price_micro": 500_000, "within_us": S, "nano_units_per_row": (100_000,)}
        message = LoadAgreed(**more | given)
    elif kind == "runs":
        message = LoadRuns(**given)
    else:
        message = PriceSaid(contract="a-b", version=1, units_per_s_milli=1, **wrong)
    with pytest.raises(RemoteProtocolError) as caught:
        trader.receive(net.now_us, "b", message)
    assert caught.value.code == code
    assert trader.status(net.now_us) == before
    net._look("a")
    net.run(net.now_us + 20 * S)
    assert not net.overdue()


@pytest.mark.parametrize(
    "message",
    [
        request(task("a0", "a"), task("a0", "a")),
        LoadRequest(contract="a-b", version=1, negotiation=8, tasks=(), price_micro=700_000, within_us=S),
        LoadMoved(contract="a-b", version=1, negotiation=7, tasks=("a9",)),
        LoadMoved(contract="other", version=1, negotiation=7, tasks=("a0",)),
        PriceSaid(contract="a-b", version=1, price_micro=700_000, units_per_s_milli=1),
    ],
)
def test_a_consumer_that_breaks_a_rule_changes_nothing(message):
    net = provider()
    assert isinstance(answer(net, request()), LoadAgreed)
    trader = net.members["b"].trader
    before = trader.status(net.now_us)
    with pytest.raises(RemoteProtocolError):
        trader.receive(net.now_us, "a", message)
    assert trader.status(net.now_us) == before


def test_a_driver_that_reports_what_was_not_to_be_done_is_told():
    net, asked = asking()
    trader = net.members["a"].trader
    with pytest.raises(LocalProtocolError, match="isn't being handed over"):
        trader.handed_over(net.now_us, asked.negotiation, "a0")


@pytest.mark.parametrize(
    ("terms", "match"),
    [
        ({"provider": "c"}, "one of two"),
        ({"consumer": "b"}, "got 'b' for both"),
        ({"range_micro": 1_000_001}, "at most the price of 1.00 EUR"),
        ({"ends_us": 0}, "an end after the begin"),
        ({"price_micro": 2_000_000}, "what is signed never changes"),
    ],
)
def test_a_contract_that_is_not_ours_or_contradicts_itself_is_refused(terms, match):
    net = provider()
    one = contract("a", "b", 1_000_000)
    given = {name: getattr(one, name) for name in one.__struct_fields__} | terms
    with pytest.raises(ContractError, match=match):
        net.members["b"].trader.sign(net.now_us, type(one)(**given))
    assert len(net.members["b"].trader.status(net.now_us).contracts) == 1
