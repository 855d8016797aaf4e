"""The market as a part of a node: messages come to it, it is kept, read again, shown, and moves nothing there
where nothing can move."""

from __future__ import annotations

from dataclasses import replace

import pytest

from medusa.errors import LinkError, RemoteProtocolError
from medusa.market.negotiation.messages import LoadRequest, PriceSaid
from medusa.market.work import TradedTask
from medusa.nodes.catalog.catalog import CATALOG, Catalog
from medusa.nodes.config.settings import Settings
from medusa.nodes.market.lent_fragments import LentFragments
from medusa.nodes.market.market_words import TaskRowsHeard, encode_word, read_traded
from medusa.nodes.node import NodeMind
from medusa.nodes.reports import Persisted, RulesRead, Started, Surroundings
from medusa.wire.limits import PROTOCOL_VERSION
from medusa.wire.messages.commands import Reply
from medusa.wire.messages.links import Heartbeat, Hello
from medusa.wire.messages.market import Booked, Traded
from medusa.wire.outbox import Persist, Send
from medusa.wire.status_and_metrics import MarketStatus, status_of
from tests.nodes.keyed import ALICE, SECURITY, curve, verify
from tests.nodes.market.owners import FEDERATION, SECOND_US, WALL_US, contract, rules, signed

PAPERS = {"sold.contract": signed(contract("alice", "bob", id="sold"))}
TASK = TradedTask(name="bob/q/in", owner="bob", rows_per_s_milli=10_000, cpu_ns_per_row=10_000_000)


class Trading:
    """The node ``n`` of alice; core is bob's and trades for him, near is hers."""

    def __init__(self, papers=PAPERS, *, trades=True, catalog=None):
        self.settings = Settings(
            name="n",
            listen="tcp://*:1",
            data="d",
            participant="alice",
            peers=dict.fromkeys(SECURITY.peers, "tcp://example.org:1"),
            security=SECURITY,
            market=rules({"bob": "core"}) if trades else None,
        )
        self.brain = NodeMind(
            self.settings, incarnation=1, catalog=catalog, verify=verify, signer=ALICE, papers=papers
        )
        self.now_us, self.disk = 0, b""
        self.brain.report(0, Surroundings(WALL_US))
        self.brain.report(0, Started())
        self.settle()
        for name in ("near", "core"):
            hello = Hello(version=PROTOCOL_VERSION, node=name, incarnation=1, client=False, answer=True)
            self.brain.admit(hello, key=curve(name))
            self.say(name, hello)

    def settle(self):
        found = []
        while effects := self.brain.outbox.take():
            found += effects
            for effect in effects:
                if isinstance(effect, Persist):
                    self.disk = bytes(effect.files[CATALOG])
                    self.brain.report(self.now_us, Persisted(effect.token, True))
        return [(each.peer, each.message, each.payload) for each in found if isinstance(each, Send)]

    def say(self, name, message, payload=None):
        self.brain.receive(self.now_us, name, message, payload, key=curve(name))
        return self.settle()

    def run(self, seconds):
        said = []
        for _ in range(round(seconds * 4)):
            self.now_us += SECOND_US // 4
            for name in ("near", "core"):
                said += self.say(name, Heartbeat(incarnation=1))
            self.brain.tick(self.now_us)
            said += self.settle()
        return said

    @property
    def market(self):
        found = status_of(self.brain.status(self.now_us)).market
        assert isinstance(found, MarketStatus)
        return found


def words(said):
    return [read_traded(peer, payload) for peer, message, payload in said if isinstance(message, Traded)]


def test_it_says_its_price_to_the_node_that_trades_for_its_partner():
    node = Trading()
    said = node.run(8)
    prices = [each for each in words(said) if isinstance(each, PriceSaid)]
    assert [each.contract for each in prices] == ["sold"]
    assert {peer for peer, message, _ in said if isinstance(message, Traded)} == {"core"}
    assert node.market.contracts[0].role == "provider"
    assert node.market.contracts[0].reached


def test_a_request_is_answered_and_room_is_kept_by_a_permit():
    node = Trading()
    node.run(8)
    ask = LoadRequest(
        contract="sold", version=1, negotiation=3, tasks=(TASK,), price_micro=2_000_000, within_us=2_000_000
    )
    node.say("core", Traded(request=9), encode_word(ask))
    (answer,) = (each for each in words(node.run(1)) if not isinstance(each, PriceSaid))
    assert (answer.negotiation, answer.tasks) == (3, (TASK.name,))
    (permit,) = node.brain.permits.all_into()
    assert (permit.fragment, permit.participant) == ("q/in", "bob")
    assert Catalog.from_bytes(node.disk, node="n", where="disk").market.trades.deals[0].part == "room"
    node.run(40)
    assert all(each.ended for each in node.brain.permits.all_into()), "nothing came"


@pytest.mark.parametrize(
    ("over_since_s", "sending", "asked_s", "waits"),
    [
        (25, [], None, True),  # partners come first
        (10, [], None, False),
        (10, ["q/ours"], None, True),
        (10, [], 25, True),  # a guest may be gone soon
        (10, [], 15, False),  # its owner is silent: it is too much as before
    ],
)
def test_rows_are_left_out_when_no_partner_takes_what_is_ours_or_its_own(
    monkeypatch, over_since_s, sending, asked_s, waits
):
    node = Trading()
    node.run(30)
    guests = {} if asked_s is None else {"q/guest": asked_s * SECOND_US}
    monkeypatch.setattr(LentFragments, "sending", lambda moves: sending)
    monkeypatch.setattr(LentFragments, "giving_back", lambda moves: guests)
    assert node.brain.market_may_take(over_since_s * SECOND_US) == waits
    assert not Trading(trades=False).brain.market_may_take(0)


def test_our_own_nodes_dont_trade_with_us():
    node = Trading()
    with pytest.raises(RemoteProtocolError) as caught:
        node.say("near", Traded(request=9), b"x")
    assert caught.value.code == "E_ROLE"


@pytest.mark.parametrize("kind", [Traded, Booked])
def test_without_a_contract_and_without_a_market_it_is_refused(kind):
    price = PriceSaid(contract="c", version=1, price_micro=1, units_per_s_milli=1)
    word = (
        encode_word(price)
        if kind is Traded
        else encode_word(TaskRowsHeard(contract="c", negotiation=1, task="t"))
    )
    for node in (Trading({}), Trading(trades=False)):
        said = node.say("core", kind(request=9), word)
        (refused,) = (message for peer, message, _ in said if isinstance(message, Reply) and peer == "core")
        assert (refused.request, refused.code) == (9, "E_NO_CONTRACT")
        assert node.brain.refusals == {"E_NO_CONTRACT": 1}


def test_contracts_and_keys_are_read_again():
    node = Trading({})
    assert node.market.contracts == ()
    node.brain.report(node.now_us, RulesRead(SECURITY, papers=PAPERS))
    node.settle()
    assert [each.id for each in node.market.contracts] == ["sold"]
    other = {"x.contract": signed(contract("alice", "bob", id="x"), federation="elsewhere")}
    node.brain.report(node.now_us, RulesRead(SECURITY, papers=PAPERS | other))
    assert "elsewhere" in node.market.refused_papers["x.contract"]
    without = replace(SECURITY, denied=("bob",))
    node.brain.report(node.now_us, RulesRead(without, papers=PAPERS))
    assert "none that is known here" in node.market.refused_papers["sold.contract"]


def test_what_is_owed_is_in_the_catalog_and_comes_back():
    node = Trading()
    node.run(8)
    kept = Catalog.from_bytes(node.disk, node="n", where="disk")
    assert kept.market.ledger, "the contract is in the ledger"
    again = Trading({}, catalog=kept)
    assert again.brain.catalog.market.ledger == kept.market.ledger


def test_a_node_that_doesnt_trade_says_nothing_of_it():
    assert "market" not in Trading(trades=False).brain.status(0)


def test_federation_of_the_tests():
    """Else every contract above would be refused."""
    assert SECURITY.federation == FEDERATION


def test_before_the_time_is_known_no_partner_reads_what_a_contract_may_sell():
    """Contracts aren't read yet: ``[offers]`` doesn't count for who may have one."""
    settings = Trading().settings
    brain = NodeMind(settings, incarnation=1, verify=verify, signer=ALICE, papers=PAPERS)
    with pytest.raises(LinkError, match="doesn't know yet which contracts count") as error:
        brain.market.sells("bob", "q.out", ("ts", "v"))
    assert error.value.code == "E_BUSY"
    assert brain.market.sells("carol", "q.out", ("ts", "v")) is None, "no partner"
