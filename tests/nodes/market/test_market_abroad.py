"""Two owners' real nodes in virtual time: the market sends a fragment with its state to a partner.

It is paid by rows, and what comes out is as if nothing had moved.
"""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from medusa.market.work import ResourceUse
from medusa.nodes.abroad.abroad_moves import AbroadMoves
from medusa.nodes.config.settings_market import CostRules, MarketRules
from medusa.nodes.fragment.inputs import FragmentInput
from medusa.nodes.load.loads import NodeLoads
from medusa.sim.world.clock import EPOCH_US
from tests.nodes.abroad.lending import Lending, counting
from tests.nodes.market.papers import TERMS, signed

ROW_S = 0.001
"""What a row takes: time stands still while boxes of simulated nodes run."""


@pytest.fixture(autouse=True)
def rows_take_time(monkeypatch):
    measured = NodeLoads.fragment

    def fragment(self, name):
        load = measured(self, name)
        return load and msgspec.structs.replace(load, busy_share=load.rows_in_per_s * ROW_S)

    def cpu_cores(self, name):
        load = fragment(self, name)
        return load and load.busy_share

    monkeypatch.setattr(NodeLoads, "fragment", fragment)
    monkeypatch.setattr(NodeLoads, "cpu_cores", cpu_cores)


def rules(partner, node, unit_micro):
    return MarketRules(
        contracts="contracts",
        key="key",
        capacity=ResourceUse(cpu_cores=4.0),
        cost=CostRules(cpu=((0.0, 0), (1.0, unit_micro))),
        partners={partner: node},
    )


def trading(*, checkpoint_every_us=50_000, **terms):
    """A core-second costs alice ten, bob a tenth, and two by the contract."""
    papers = {"c.contract": signed(msgspec.structs.replace(TERMS, **terms))}
    trades = {
        "m": (rules("bob", "h", 10_000_000), papers),
        "h": (rules("alice", "m", 100_000), papers),
    }
    return Lending(counting(), trades=trades, checkpoint_every_us=checkpoint_every_us)


def market(run, name):
    node = run.node(name)
    return node.brain.market.status(node.clock.monotonic_us())


def test_a_fragment_goes_by_the_market_and_its_output_is_exact():
    run = trading()
    fragment = run.deploy()
    run.fed.run(for_us=6_000_000)
    run.publish(0, 120)
    run.until_at(fragment, "h")
    run.publish(120)
    run.check()
    run.fed.run(for_us=5_000_000)
    ours, theirs = market(run, "m"), market(run, "h")
    assert ours.handed_over == theirs.took == 1
    a, b = ours.contracts[0], theirs.contracts[0]
    assert a.receipts == b.receipts > 0
    assert a.owed_micro + a.settled_micro == b.owed_micro + b.settled_micro > 0
    assert (a.disputes, b.disputes) == (0, 0)


def owed(run, name):
    (found,) = market(run, name).contracts
    return found.owed_micro + found.settled_micro


def agree(run):
    """Both say the same of what is owed, once what is under way has come."""
    run.until(lambda: owed(run, "m") == owed(run, "h"), "both agree", for_us=10_000_000)
    for name in ("m", "h"):
        assert market(run, name).contracts[0].disputes == 0
        assert "E_BILLING" not in run.node(name).brain.refusals


def lent(**terms):
    """It went by the market, after half of the rows."""
    run = trading(**terms)
    fragment = run.deploy()
    run.fed.run(for_us=6_000_000)
    run.publish(0, 120)
    run.until_at(fragment, "h")
    run.fed.run(for_us=2_000_000)
    assert market(run, "h").guests[0].paid_row is not None
    return run, fragment


def test_a_host_that_vanishes_loses_it_and_is_paid_for_what_its_owner_has():
    run, fragment = lent()
    run.node("h").crash()
    run.until(lambda: not run.runs_at(fragment, "h"), "it is home")
    run.publish(120)
    run.check()
    run.fed.run(for_us=5_000_000)
    assert market(run, "m").away == ()
    run.node("h").start()
    run.fed.run(for_us=5_000_000)
    agree(run)


def test_rows_are_counted_in_time_though_nodes_take_checkpoints_rarely():
    """An owner has the rows that its host's newest checkpoint has: a guest takes four in an interval."""
    run, fragment = lent(checkpoint_every_us=20_000_000, interval_s=2)
    for begin in range(120, 240, 12):
        run.publish(begin, begin + 12)
        run.fed.run(for_us=1_300_000)
        assert run.runs_at(fragment, "h")
    run.check()
    agree(run)
    for name in ("m", "h"):
        (contract,) = market(run, name).contracts
        assert (contract.stopped, contract.disputes) == ("", 0)
        assert contract.receipts >= 5
    assert market(run, "m").came_home == 0


@pytest.mark.parametrize("name", ["m", "h"])
def test_either_side_may_be_restarted_while_it_is_away(name):
    run, _ = lent()
    run.node(name).crash()
    run.fed.run(for_us=200_000)
    run.node(name).start()
    run.fed.run(for_us=2_000_000)
    run.publish(120)
    run.check()
    run.fed.run(for_us=8_000_000)
    agree(run)


def test_when_the_contract_is_over_it_comes_home():
    run, fragment = lent(ends_us=EPOCH_US + 20_000_000)
    run.until(lambda: run.fed.world.now_us > 20_000_000, "the end of the contract")
    run.until(lambda: not run.runs_at(fragment, "h"), "it is home")
    run.publish(120)
    run.check()
    agree(run)
    assert market(run, "m").away == market(run, "h").guests == ()
    assert [run.node(name).brain.permits.all_out() for name in ("m", "h")] == [(), ()]


def test_a_host_that_bills_rows_that_nobody_has_put_out_is_paid_for_none_of_them(monkeypatch):
    """In its checkpoints and in its bills alike: what is owed is for rows that there are."""
    run, fragment = lent()
    there, (guest,) = run.node("h").brain.fragments[fragment], market(run, "h").guests
    honest, counts, claimed = FragmentInput.record, AbroadMoves.guests, 0

    def record(self):
        made = honest(self)
        mine = any(self is each for each in there.inputs.values())
        return msgspec.structs.replace(made, next_seq=made.next_seq + claimed) if mine else made

    def guests(self):
        return tuple(replace(each, rows_in=each.rows_in + claimed) for each in counts(self))

    monkeypatch.setattr(FragmentInput, "record", record)
    monkeypatch.setattr(AbroadMoves, "guests", guests)
    run.publish(120, 132)
    run.until(lambda: owed(run, "m") > 0, "the first rows are paid")
    before = owed(run, "m")
    for begin in range(132, 240, 12):
        claimed += 4_000
        run.publish(begin, begin + 12)
        run.fed.run(for_us=1_000_000)
    run.until(lambda: not run.runs_at(fragment, "h"), "who bills more than there is has it no longer")
    run.check()
    run.fed.run(for_us=5_000_000)
    most = 240 * guest.nano_units_per_row * guest.price_micro // 10**9
    assert 0 < before <= owed(run, "m") <= most
