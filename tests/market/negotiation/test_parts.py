"""The parts of a trader that decide nothing alone: rests, prices, policies, contracts, settings, reasons."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from medusa.errors import ContractError
from medusa.market.cost import QueueingCost
from medusa.market.negotiation.answers import AnswerJudge
from medusa.market.negotiation.backoff import Backoff
from medusa.market.negotiation.books import LoadBooks
from medusa.market.negotiation.contract_book import ContractBook, SignedContract
from medusa.market.negotiation.policies import LoadPolicy, OwnersPolicy
from medusa.market.negotiation.prices import PriceBoard
from medusa.market.negotiation.reasons import TradeReason, reason_text
from medusa.market.negotiation.settings import TradeSettings
from medusa.market.work import ResourceUse
from tests.market.negotiation.network import S, Square, contract, task

DOCS = Path(__file__).parents[3] / "docs"


def test_each_failure_in_a_row_doubles_the_rest_up_to_the_most():
    rests = Backoff(1 * S, 8 * S, lambda n: 0)
    until = [rests.failed(0, "x") // S for _ in range(6)]
    assert until == [1, 2, 4, 8, 8, 8]
    rests.succeeded("x")
    assert (rests.rests(0, "x"), rests.failed(0, "x") // S) == (False, 1)
    assert not rests.rests(0, "y")


def test_who_is_busy_is_asked_again_soon_however_often_it_failed_before():
    rests = Backoff(1 * S, 64 * S, lambda n: 0)
    for _ in range(10):
        rests.failed(0, "a")
    assert rests.failed(0, "a", most_us=4 * S) == 4 * S
    assert rests.failed(0, "a", most_us=4 * S) == 4 * S
    assert rests.failed(0, "a") == 8 * S
    assert rests.failed(0, "b", most_us=4 * S) == 1 * S


def test_news_end_a_rest_but_not_the_row_of_failures():
    rests = Backoff(1 * S, 8 * S, lambda n: 0)
    rests.failed(0, "x")
    rests.eased(S // 2, "x")
    assert (rests.rests(S // 2, "x"), rests.until_us("x")) == (False, S // 2)
    assert rests.failed(S // 2, "x") == S // 2 + 2 * S


@given(st.integers(0, 1 << 20), st.integers(1, 12))
def test_jitter_adds_at_most_half(chance: int, times: int) -> None:
    rests = Backoff(1_000, 64_000, lambda n: chance % n)
    for _ in range(times):
        until = rests.failed(0, "x")
    least = min(1_000 << (times - 1), 64_000)
    assert least <= until <= least * 3 // 2


def signed(**more: object) -> SignedContract:
    return SignedContract(contract=contract("a", "b", 1_000, **more), partner="b", consumes=True)


def test_an_offer_begins_at_the_lowest_price_and_rises_by_steps_to_the_top():
    prices, by = PriceBoard(100 * S, 4), signed(range_micro=400)
    asked = [prices.ask(0, by)]
    while prices.refused(0, by, asked[-1]):
        asked.append(prices.ask(0, by))
    assert asked == [600, 700, 800, 900, 1_000]
    assert prices.ask(100 * S, by) == 600


def test_what_was_heard_counts_until_it_is_old_and_news_put_what_was_learnt_away():
    prices, by = PriceBoard(100 * S, 4), signed(range_micro=400)
    assert prices.heard(0, by, 700, 50)
    assert (prices.ask(0, by), prices.full(0, by), prices.room_milli(0, by)) == (700, False, 50)
    prices.learnt(0, by, 900)
    assert not prices.heard(S, by, 700, 60)
    assert prices.ask(S, by) == 900
    assert prices.heard(2 * S, by, 650, 60)
    assert prices.ask(2 * S, by) == 650
    assert not prices.heard(3 * S, by, 1_000, 0)
    assert prices.full(3 * S, by)
    assert not prices.full(104 * S, by)


@given(st.integers(0, 5_000), st.integers(0, 1_000))
def test_what_is_offered_is_in_the_range_whatever_was_heard(said: int, width: int) -> None:
    prices, by = PriceBoard(100 * S, 4), signed(range_micro=width)
    prices.heard(0, by, said, 1)
    assert 1_000 - width <= prices.ask(0, by) <= 1_000
    prices.learnt(0, by, said)
    assert 1_000 - width <= prices.ask(0, by) <= 1_000


def test_the_papers_policy_prefers_nobody_and_moves_all():
    policy, tasks = LoadPolicy(), [task("b", "x"), task("a", "x")]
    assert [each.name for each in policy.shed_order(tasks)] == ["b", "a"]
    assert policy.rank("y") == policy.rank("z")
    assert policy.may_move(tasks[0], "y")
    assert policy.may_take(tasks[0], "y")


def test_an_owner_writes_names_with_stars():
    policy = OwnersPolicy(
        prefer=("bob", "c*"), avoid=("evil.*",), shed_first=("batch-*",), never_move=("bill[1]*",)
    )
    assert [policy.rank(name) for name in ("bob", "carol", "dave")] == [0, 1, 2]
    tasks = [task("x", "o"), task("batch-2", "o"), task("y", "o"), task("batch-1", "o")]
    assert [each.name for each in policy.shed_order(tasks)] == ["batch-2", "batch-1", "x", "y"]
    assert not policy.may_move(task("bill[1]ing", "o"), "bob")
    assert policy.may_move(task("bill1", "o"), "bob")
    assert not policy.may_take(tasks[0], "evil.inc")
    assert policy.may_take(tasks[0], "evilxinc")


def test_a_book_keeps_the_newest_version_and_knows_what_was_revoked():
    book = ContractBook("a")
    first, second = contract("a", "b", version=1), contract("a", "b", 5, version=2, begins_us=9)
    assert book.sign(first).contract == first
    assert book.sign(first) is None
    assert book.sign(second).contract == second
    assert [book.in_force(at, "b", "a-b").contract.version for at in (0, 8, 9)] == [1, 1, 2]
    assert (book.changes_at_us(0), book.changes_at_us(9)) == (9, second.ends_us)
    assert [each.contract.version for each in book.all(0)] == [1, 2]
    assert [each.contract.version for each in book.all(9)] == [2]
    assert book.revoke(10, "b", "a-b").contract == second
    assert book.revoke(10, "b", "a-b") is None
    assert book.sign(second) is None
    assert book.in_force(10, "b", "a-b") is None
    with pytest.raises(ContractError, match="write version 3"):
        book.sign(contract("a", "b", 7, version=2, begins_us=20))
    with pytest.raises(ContractError, match="let it begin later"):
        book.sign(contract("a", "b", version=3, begins_us=9))
    assert book.sign(contract("a", "b", version=3, begins_us=20)) is not None
    assert (book.in_force(19, "b", "a-b"), book.in_force(20, "b", "a-b").contract.version) == (None, 3)


def test_a_book_keeps_to_the_notice_and_to_the_terms():
    book = ContractBook("a")
    book.sign(contract("a", "b", notice_s=30))
    assert book.revoke(0, "b", "a-b") is not None
    assert [book.in_force(at, "b", "a-b") is None for at in (0, 30 * S - 1, 30 * S)] == [False, False, True]
    assert book.revoke(0, "b", "a-b", ends_us=40 * S) is None
    assert book.revoke(0, "b", "a-b", ends_us=20 * S) is not None
    assert book.changes_at_us(0) == 20 * S
    with pytest.raises(ContractError, match="tolerance_ppm"):
        book.sign(contract("a", "c", tolerance_ppm=1_000_000))


def test_a_contract_counts_from_its_begin_to_before_its_end():
    book = ContractBook("b")
    by = book.sign(contract("a", "b", begins_us=5 * S, ends_us=9 * S, interval_s=1))
    assert [at for at in range(12) if book.in_force(at * S, "a", "a-b")] == [5, 6, 7, 8]
    assert [at for at in range(12) if book.still_holds(at * S, by)] == [5, 6, 7, 8]
    assert [book.changes_at_us(at * S) for at in (0, 5, 9)] == [5 * S, 9 * S, None]
    assert (list(book.consuming(6 * S)), list(book.providing(6 * S))) == ([], [by])


@pytest.mark.parametrize(
    ("owners", "next_ones", "may"),
    [
        ((), (), False),
        (("c",), (), True),
        (("c",), ("c",), True),
        (("c",), ("d",), False),
        (("c", "d"), ("d",), True),
        (("c",), ("*",), False),
        (("*",), ("*",), True),
        (("d",), (), False),
    ],
)
def test_a_guest_follows_where_its_owner_allows_it_to_all_who_may_have_it_then(owners, next_ones, may):
    came = SignedContract(contract=contract("a", "b", resale=owners), partner="a", consumes=False)
    goes = SignedContract(contract=contract("b", "c", resale=next_ones), partner="c", consumes=True)
    assert goes.may_follow(came) == may


@pytest.mark.parametrize(
    "wrong",
    [
        {"epsilon_ppm": -1},
        {"epsilon_ppm": 1_000_000},
        {"round_us": 0},
        {"round_us": 1.5},
        {"moves_max": True},
        {"tasks_max": 1_001},
    ],
)
def test_settings_that_cannot_be_are_refused_by_their_name(wrong):
    with pytest.raises(ContractError, match=next(iter(wrong))):
        TradeSettings(**wrong)


def test_every_reason_has_its_text_and_its_place_in_the_document():
    said = (DOCS / "negotiation.md").read_text(encoding="utf-8")
    for reason in TradeReason:
        assert reason_text(reason.value) != reason.value
        assert re.fullmatch("E_[A-Z_]+", reason.value)
    refusals = {
        "E_NO_CONTRACT",
        "E_TASK_NOT_ALLOWED",
        "E_OVER_LIMIT",
        "E_PRICE",
        "E_CAP",
        "E_TOO_DEAR",
        "E_FULL",
    }
    assert all(f"| `{code}` |" in said for code in refusals)
    assert reason_text("E_OF_A_NEWER_RELEASE") == "E_OF_A_NEWER_RELEASE"


def test_the_capacity_is_kept_to_exactly():
    books = LoadBooks(Square(1.0), ResourceUse(cpu_cores=0.3))
    assert books.fits(ResourceUse(cpu_cores=0.1 + 0.2))
    assert not books.fits(ResourceUse(cpu_cores=0.3001))
    assert books.fits(ResourceUse(bytes_per_s=1e12))  # which isn't bounded


@given(
    st.lists(st.sampled_from([0.01, 0.05, 0.2, 0.6]), max_size=6),
    st.integers(1, 3_000_000),
    st.floats(0, 0.95),
)
def test_what_a_provider_takes_is_what_counting_by_hand_takes(sizes, price, own):
    """Of the prototype's cost, near saturation and beyond, against sums of its formula."""
    settings = TradeSettings(capacity=ResourceUse(cpu_cores=1.0))
    books = LoadBooks(QueueingCost(ResourceUse(cpu_cores=1.0), 1e5), settings.capacity)
    books.measured([task("own", "b", own)] if own > 1e-3 else [], ResourceUse())
    by = SignedContract(contract=contract("a", "b", price), partner="a", consumes=False)
    asked = [task(f"a{n}", "a", size) for n, size in enumerate(sizes)]
    found = AnswerJudge("b", settings, books=books, policy=LoadPolicy()).judge(by, asked, price)

    def queue(share: float) -> float:
        return 1e5 * (share / (1 - share) if share <= 0.99 else 99 + (share - 0.99) / 1e-4)

    load, expected = round(own * 1e6) / 1e6 if own > 1e-3 else 0.0, []
    for each, size in zip(asked, sizes, strict=True):
        margin = (queue(load + size) - queue(load)) / size - price * 0.98
        if abs(margin) < 1e-3 or abs(load + size - 1) < 1e-6:
            return
        if load + size <= 1 and margin < 0:
            expected.append(each)
            load += size
    assert list(found.taken) == expected


@given(st.floats(0.0, 2.0), st.integers(0, 1_000_000), st.sampled_from([None, 0.05, 0.4]))
def test_the_price_that_a_provider_says_is_in_the_range_and_one_that_it_would_take(own, width, like):
    settings = TradeSettings(capacity=ResourceUse(cpu_cores=1.5))
    books = LoadBooks(Square(1e6), settings.capacity)
    books.measured([task("own", "b", own)], ResourceUse())
    terms = contract("a", "b", 1_000_000, range_micro=width)
    by = SignedContract(contract=terms, partner="a", consumes=False)
    judge = AnswerJudge("b", settings, books=books, policy=LoadPolicy())
    [(_, price, room)] = judge.offers([(by, task("a0", "a", like) if like else None)])
    assert terms.least_micro <= price <= terms.price_micro
    if room > 1:
        assert judge.judge(by, [task("a1", "a", 0.0005)], price).taken
        assert judge.judge(by, [task("a1", "a", room / 1_000 * 0.999)], terms.price_micro).taken
    else:
        assert not judge.judge(by, [task("a1", "a", 0.01)], terms.price_micro).taken
