"""Whole nodes of two owners that trade: an overloaded one sheds a fragment with its state, pays for its rows,
and has it back when its partner dies or their contract ends. Rows are as if nothing had moved."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from medusa.market.contract.signed import ContractDocument, countersign, document_to_text, sign_document
from medusa.market.contract.terms import Contract, TaskTerms
from medusa.nodes.config.settings_market import CostRules
from medusa.nodes.load.loads import NodeLoads
from medusa.nodes.reports import RulesRead
from medusa.sim.actors.node import NodeMachine
from medusa.sim.world.clock import EPOCH_US
from medusa.sim.world.keyring import FEDERATION, Signing
from medusa.wire.status_and_metrics import MarketStatus, SmoothedLoad, status_of
from tests.nodes.abroad import lending
from tests.nodes.abroad.lending import HALF, ROWS, Lending, counting
from tests.nodes.market.owners import rules

SECOND_US = 1_000_000
DAY_US = 86_400 * SECOND_US
LONG_US = 120 * SECOND_US
SOLD = Contract(
    id="sold",
    provider="bob",
    consumer="alice",
    begins_us=EPOCH_US - DAY_US,
    ends_us=EPOCH_US + DAY_US,
    price_micro=2_000_000,
    range_micro=1_000_000,
    units_per_s_max_milli=1_000,
    interval_s=2,
    settlement_s=20,
)
CHEAP = CostRules(cpu=((0.0, 0), (1.0, 100_000)))


def signed(terms: Contract) -> str:
    paper = ContractDocument(federation=FEDERATION, until_us=EPOCH_US + DAY_US, contract=terms)
    first = sign_document(paper, Signing(terms.consumer), terms.consumer)
    return document_to_text(countersign(first, Signing(terms.provider), terms.provider))


class TradingNodes(Lending):
    """m trades for alice, and h for bob, whose load is cheaper."""

    def __init__(self, terms: Contract = SOLD) -> None:
        super().__init__(counting())
        self.papers = {"sold.contract": signed(terms)}
        self.trade("m", bob="h")
        self.trade("h", cost=CHEAP, alice="m")
        self.fragment = self.deploy()

    def _watch(self, node: NodeMachine) -> None:
        """Events of moves are the market's here."""
        if node.alive:
            for fragment, hosted in node.brain.fragments.items():
                if not hosted.frozen:
                    epoch = node.brain.catalog.ownership.epoch(fragment)
                    owner = self.owners.setdefault((fragment, epoch), node.name)
                    assert owner == node.name, f"{fragment} in epoch {epoch} is of {owner} and of {node.name}"

    def trade(self, name: str, *, cost: CostRules | None = None, **partners: str) -> None:
        machine = self.node(name)
        more = {} if cost is None else {"cost": cost}
        machine.settings = replace(machine.settings, market=rules(partners, **more))
        machine.crash()
        self.start(name)

    def start(self, name: str) -> None:
        """Its configuration and the files of its contracts are read."""
        machine = self.node(name)
        machine.restart()
        security = machine.settings.security
        assert security is not None
        papers = self.papers
        machine.order(lambda now_us: machine.brain.report(now_us, RulesRead(security, papers=papers)))

    def market(self, name: str) -> MarketStatus:
        machine = self.node(name)
        found = status_of(machine.brain.status(machine.clock.monotonic_us())).market
        assert isinstance(found, MarketStatus)
        return found

    def run_for(self, seconds: float) -> None:
        self.fed.run(for_us=round(seconds * SECOND_US))

    def shed(self, busy: dict[str, float]) -> None:
        """Half of the rows are under way, and it runs at bob's."""
        self.publish(0, HALF)
        busy[self.fragment] = 0.9
        self.until(lambda: self.runs_at(self.fragment, "h"), "it is shed", for_us=LONG_US)

    def ends(self) -> None:
        """The other half comes."""
        self.publish(HALF, ROWS)
        streams = {f"{self.query}.{sink}" for sink in self.want}
        self.until(lambda: streams <= self.reader.ended, "all rows come", for_us=LONG_US)
        self.check()

    def paid_micro(self, name: str) -> int:
        """What alice owes and has paid to bob, as one of them knows it."""
        [found] = self.market(name).contracts
        assert found.disputes == 0
        return found.owed_micro + found.settled_micro

    def is_home(self) -> bool:
        return any(self.runs_at(self.fragment, name) for name in ("m", "s"))


@pytest.fixture
def busy(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """What fragments take of a core, as each node measures it; rows come once a second."""
    shares: dict[str, float] = {}
    monkeypatch.setattr(lending, "EVERY_US", SECOND_US)

    def measured(self: NodeLoads, name: str) -> SmoothedLoad | None:
        if name not in self._hosted:
            return None
        return SmoothedLoad(rows_in_per_s=6.0, busy_share=shares.get(name, 0.0))

    def cpu_cores(self: NodeLoads, name: str) -> float | None:
        load = measured(self, name)
        return None if load is None else load.busy_share

    monkeypatch.setattr(NodeLoads, "fragment", measured)
    monkeypatch.setattr(NodeLoads, "cpu_cores", cpu_cores)
    return shares


NANO_PER_ROW = 150_000_000
"""0.9 of a core for six rows a second."""


def test_an_overloaded_owner_sheds_a_fragment_and_pays_for_its_rows(busy: dict[str, float]) -> None:
    run = TradingNodes()
    run.shed(busy)
    run.run_for(2)
    [ours], [theirs] = run.market("m").away, run.market("h").guests
    assert (ours.task, ours.partner) == (f"alice/{run.fragment}", "bob")
    assert (theirs.task, theirs.partner) == (f"alice/{run.fragment}", "alice")
    assert SOLD.price_micro - SOLD.range_micro <= ours.price_micro == theirs.price_micro <= SOLD.price_micro
    assert ours.nano_units_per_row == theirs.nano_units_per_row == NANO_PER_ROW
    before = ours.paid_row
    run.ends()
    run.until(lambda: run.paid_micro("m") == run.paid_micro("h") > 0, "both have booked the same")
    run.run_for(6)
    [after] = run.market("m").away
    assert before is not None
    assert after.paid_row is not None
    assert after.paid_row == ROWS, "each row that both have counts once"
    assert run.market("m").handed_over == run.market("h").took == 1
    first = _begin_row(run)
    due = (ROWS - first) * NANO_PER_ROW * ours.price_micro // 10**9
    assert run.paid_micro("m") == run.paid_micro("h") == due


def _begin_row(run: TradingNodes) -> int:
    """From which row on it is paid for, as alice has told bob."""
    [mark] = run.node("m").brain.catalog.market.marks
    return mark.begin_row


def test_a_host_that_dies_for_good_loses_the_fragment_and_its_owner_goes_on(busy: dict[str, float]) -> None:
    run = TradingNodes()
    run.shed(busy)
    run.run_for(5)
    run.node("h").crash()
    run.until(run.is_home, "it is taken over at home")
    run.ends()
    market = run.market("m")
    assert not market.away
    assert (market.handed_over, market.came_home, market.lost) == (1, 1, 1)


def test_when_the_contract_ends_all_comes_home(busy: dict[str, float]) -> None:
    run = TradingNodes(msgspec.structs.replace(SOLD, ends_us=EPOCH_US + 15 * SECOND_US))
    run.shed(busy)
    run.until(run.is_home, "it comes home")
    run.ends()
    assert not run.market("m").away
    assert not run.market("h").guests
    assert run.node("h").brain.permits.all_into() == (), "nothing of it is left there"
    run.until(lambda: run.paid_micro("m") == run.paid_micro("h") > 0, "both have booked the same")


@pytest.mark.parametrize("who", ["m", "h", "s", "e"])
def test_any_node_may_be_restarted_while_it_is_away(busy: dict[str, float], who: str) -> None:
    run = TradingNodes()
    run.shed(busy)
    run.run_for(3)
    run.node(who).crash()
    run.run_for(0.2)
    run.start(who)
    run.run_for(5)
    run.ends()
    run.until(lambda: run.paid_micro("m") == run.paid_micro("h") > 0, "both have booked the same")
    owner = run.replicas(run.fragment).owner
    assert [each.task for each in run.market("m").away] == ([f"alice/{run.fragment}"] if owner == "h" else [])
    assert len(run.market("h").guests) == (owner == "h")


def test_without_a_contract_nothing_moves(busy: dict[str, float]) -> None:
    run = TradingNodes(msgspec.structs.replace(SOLD, provider="carol"))
    run.publish(0, HALF)
    busy[run.fragment] = 0.9
    run.run_for(30)
    assert run.runs_at(run.fragment, "m")
    assert set(run.market("m").refused_papers) == {"sold.contract"}
    run.ends()


@pytest.mark.parametrize(
    ("tasks", "names"),
    [
        (TaskTerms(boxes=("filter",)), "box 'running'"),
        (TaskTerms(streams=("q.first",)), "stream 'q.kind'"),
        (TaskTerms(columns=("ts", "v")), "column 'k'"),
    ],
)
def test_what_the_contract_doesnt_name_stays_and_says_why(
    busy: dict[str, float], tasks: TaskTerms, names: str
) -> None:
    run = TradingNodes(msgspec.structs.replace(SOLD, tasks=tasks))
    run.publish(0, HALF)
    busy[run.fragment] = 0.9
    run.run_for(30)
    assert run.runs_at(run.fragment, "m")
    why = run.market("m").stays[run.fragment]
    assert names in why
    run.ends()
