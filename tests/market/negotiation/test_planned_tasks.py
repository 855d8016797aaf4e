"""Tasks that a contract plans: they go at a signal, whatever that costs, stay, and come home at another."""

from __future__ import annotations

import msgspec
import pytest

from medusa.errors import ContractError
from medusa.market.contract.checks import check_terms
from medusa.market.contract.terms import PlannedTask, TaskTerms
from medusa.market.negotiation.effects import Say
from medusa.market.negotiation.messages import LoadAgreed, LoadEnded, LoadRequest
from medusa.market.negotiation.policies import LoadPolicy
from tests.market.negotiation.network import Network, S, Square, contract, task

PRICE = 1_000_000
PLANNED = (PlannedTask(task="q/slow", price_micro=PRICE),)


def owners(policies=None, **terms):
    """A unit costs a next to nothing, b a hundred times the price: no load would go by itself."""
    net = Network()
    policy = (policies or {}).get
    net.join("a", Square(1e3), [task("a/q/slow", "a"), task("a/q/fast", "a")], policy=policy("a"))
    net.join("b", Square(1e9), policy=policy("b"))
    net.sign(contract("a", "b", PRICE, planned=PLANNED, **terms))
    net.run(5 * S)
    assert net.moves == []
    return net


def signal(net, name="a/q/slow", partner="b"):
    number = net.members["a"].trader.go_by_plan(net.now_us, partner, name)
    net._look("a")
    return number


def test_it_goes_at_once_and_stays_where_it_costs_more_than_it_earns():
    net = owners()
    assert signal(net) is not None
    net.run(15 * S)
    assert [(each[1], each[3], each[4]) for each in net.moves] == [("a/q/slow", "b", PRICE)]
    net.run(600 * S)
    assert (len(net.moves), net.handed) == (1, []), "by itself it would go home at once"
    assert net.runs_at["a/q/slow"] == "b"


def test_it_comes_home_at_the_other_signal():
    net = owners()
    signal(net)
    net.run(20 * S)
    trader = net.members["a"].trader
    assert not trader.come_by_plan(net.now_us, "a/q/fast")
    assert trader.come_by_plan(net.now_us, "a/q/slow")
    net._look("a")
    net.run(25 * S)
    assert net.runs_at["a/q/slow"] == "a"
    assert [each[4] for each in net.handed] == ["E_SIGNAL"]
    assert net.books_agree() == []


def test_what_is_not_planned_goes_by_no_signal():
    net = owners()
    assert signal(net, "a/q/fast") is signal(net, "a/q/none") is signal(net, partner="c") is None
    assert net.messages(LoadRequest) == []


def test_another_price_is_negotiated_as_ever():
    """B takes what is planned for what is planned; for less it says no, as it would of any other task."""
    net = owners(range_micro=PRICE // 2)
    message = LoadRequest(
        contract="a-b",
        version=1,
        negotiation=99 * S,
        tasks=(net.tasks["a/q/slow"],),
        price_micro=PRICE - 1,
        within_us=10 * S,
    )
    net.members["b"].trader.receive(net.now_us, "a", message)
    net._look("b")
    net.run(15 * S)
    assert net.messages(LoadAgreed) == []


def test_more_than_the_load_of_the_contract_never_comes():
    net = owners(units_per_s_max_milli=50)
    number = signal(net)
    net.run(10 * S)
    assert net.members["a"].trader.ended(number) == "E_OVER_LIMIT"
    assert net.moves == []


class TakesNothing(LoadPolicy):
    def may_take(self, task, partner):
        return False


class StaysHere(LoadPolicy):
    def may_move(self, task, partner):
        return False


def asked(net, number, *names, **changes):
    """B hears of a request of a's for what is planned; the codes of its answers, empty for a yes."""
    tasks = tuple(msgspec.structs.replace(net.tasks[name], **changes) for name in names or ("a/q/slow",))
    message = LoadRequest(
        contract="a-b", version=1, negotiation=number, tasks=tasks, price_micro=PRICE, within_us=10 * S
    )
    effects = net.members["b"].effects
    list(effects.take())
    net.members["b"].trader.receive(net.now_us, "a", message)
    said = [each.message for each in effects.take() if isinstance(each, Say)]
    return [getattr(each, "code", "") for each in said if isinstance(each, LoadAgreed | LoadEnded)]


@pytest.mark.parametrize(
    ("policy", "terms", "code"),
    [
        (TakesNothing(), {}, "E_POLICY"),
        (None, {"tasks": TaskTerms(definitions=("other",))}, "E_TASK_NOT_ALLOWED"),
    ],
    ids=["policy", "contract"],
)
def test_a_plan_takes_nothing_that_may_not_come(policy, terms, code):
    net = owners(policies={"b": policy}, **terms)
    number = signal(net)
    net.run(10 * S)
    assert net.members["a"].trader.ended(number) == code
    assert net.moves == []


def test_a_task_that_is_planned_has_room_once_whatever_number_it_is_asked_by():
    """At no load it counts for nothing, and every number would keep another room."""
    net = owners()
    codes = [asked(net, 99 * S + number, rows_per_s_milli=0) for number in range(50)]
    assert codes == [[""], *[["E_TAKEN"]] * 49]
    kept = [each for each in net.members["b"].trader.kept().deals if each.part == "room"]
    assert len(kept) == 1


def test_who_does_not_bring_what_was_planned_rests_as_any_other():
    net = owners()
    assert asked(net, 99 * S) == [""]
    net.run(net.now_us + 31 * S)
    assert asked(net, 99 * S + 1) == ["E_BUSY"]


def test_what_grows_while_it_is_handed_over_is_away_by_what_was_agreed():
    """Else who lends would book more under the contract than its host does, and than it allows."""
    net = owners()
    signal(net)

    def kept(name):
        return [(each.part, each.task.rows_per_s_milli) for each in net.members[name].trader.kept().deals]

    while [part for part, _ in kept("a")] != ["moving"]:
        net.run(net.now_us + 1_000)
    [(_, agreed)] = kept("a")
    grown = net.tasks["a/q/slow"]
    net.tasks["a/q/slow"] = msgspec.structs.replace(grown, rows_per_s_milli=2 * agreed)
    net.measure("a")
    net.run(net.now_us + 15 * S)
    assert (kept("a"), kept("b")) == ([("away", agreed)], [("guest", agreed)])


def test_what_has_to_stay_at_home_goes_by_no_signal():
    net = owners(policies={"a": StaysHere()})
    assert signal(net) is None
    assert net.messages(LoadRequest) == []


@pytest.mark.parametrize("who", ["a", "b"])
def test_it_stays_over_a_restart_of_either(who):
    net = owners()
    signal(net)
    net.run(20 * S)
    net.lose_memory(who)
    net.run(200 * S)
    assert (net.runs_at["a/q/slow"], net.handed) == ("b", [])


def test_it_comes_home_when_the_contract_ends():
    net = owners(ends_us=60 * S)
    signal(net)
    net.run(50 * S)
    assert net.runs_at["a/q/slow"] == "b"
    net.run(100 * S)
    assert net.runs_at["a/q/slow"] == "a"


@pytest.mark.parametrize(
    "planned",
    [
        (PlannedTask(task="q/slow", price_micro=PRICE + 1),),
        (PlannedTask(task="q/slow", price_micro=PRICE - 1),),
        (PlannedTask(task="slow", price_micro=PRICE),),
        (*PLANNED, *PLANNED),
    ],
    ids=["dearer", "cheaper", "no fragment", "twice"],
)
def test_plans_that_contradict_the_terms_are_refused(planned):
    with pytest.raises(ContractError, match="planned"):
        check_terms(contract("a", "b", PRICE, planned=planned))
