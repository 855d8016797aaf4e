"""What the terminal says of load that is traded: contracts, tasks, why."""

from __future__ import annotations

import io
import json

import pytest
from click.testing import CliRunner
from msgspec.structs import replace
from rich.console import Console

from medusa.cli.main import main
from medusa.cli.screens.market_rows import explained_lines, planned_lines, top_lines
from medusa.cli.screens.status_screen import screen
from medusa.runtime.client.federation import Federation
from medusa.wire.status_and_metrics import (
    MarketContractStatus,
    MarketOfferStatus,
    MarketStatus,
    MarketTaskStatus,
    NodeStatus,
    plain,
)

CONTRACT = MarketContractStatus(
    id="power",
    version=2,
    partner="bob",
    node="bob-1",
    role="consumer",
    ask_micro=16_000,
    cores=0.4,
    owed_micro=1_250_000,
    settled_micro=40_000_000,
    exposure_micro=20_000,
)
MARKET = MarketStatus(
    capacity=0.5,
    used=0.42,
    contracts=(CONTRACT,),
    away=(
        MarketTaskStatus(
            task="alice/q/a",
            partner="bob",
            contract="power",
            price_micro=16_000,
            paid_row=98,
            for_us=90_000_000,
        ),
    ),
    guests=(
        MarketTaskStatus(
            task="bob/z/in", partner="bob", contract="power", recalled="E_LOSS", for_us=1_000_000
        ),
    ),
    planned=(
        MarketOfferStatus(
            partner="bob",
            contract="power",
            tasks=("alice/q/b",),
            price_micro=16_000,
            saved_micro_per_s=3_000.0,
        ),
    ),
    open=(
        MarketOfferStatus(
            partner="bob", contract="power", tasks=("alice/q/c",), price_micro=17_000, state="REQUESTED"
        ),
    ),
    stays={"bills/in": "[market.policy] of this node says no"},
    why_still="a request is open",
    explained=("alice/q/a is away at bob for 1 min", "alice/q/d isn't offered to bob (power): too dear"),
    refused_papers={"x.contract": "carol hasn't signed"},
    refused_by={"bob": "E_NO_CONTRACT, none"},
)
STATUS = NodeStatus(node="alice-1", participant="alice", market=MARKET)


def printed(*statuses: NodeStatus) -> str:
    out = io.StringIO()
    Console(file=out, width=200, highlight=False).print(screen([plain(each) for each in statuses]))
    return out.getvalue()


def test_status_has_contracts_and_tasks() -> None:
    text = printed(STATUS, NodeStatus(node="other"))
    assert "market: 0.42 of 0.5 cores, 1 tasks away, 1 guests; a request is open" in text
    assert "CONTRACT x.contract doesn't count: carol hasn't signed" in text
    assert "REFUSED by bob: E_NO_CONTRACT, none" in text
    lines = {line.split()[0]: line.split() for line in text.splitlines() if line.strip()}
    assert lines["power"][1:] == [
        "v2",
        "alice-1",
        "bob",
        "consumer",
        "0.40",
        "0.016",
        "EUR",
        "1.25",
        "40.00",
        "0.02",
    ]
    assert lines["alice/q/a"][1:] == ["alice-1", "bob", "away", "0.016", "1", "min", "30s", "98"]
    assert lines["bob/z/in"][1:] == ["alice-1", "bob", "guest", "0.00", "1s", "-", "goes", "home:", "E_LOSS"]


def test_what_is_wrong_with_a_contract_stands_with_it() -> None:
    kinds = (
        replace(CONTRACT, in_force=False),
        replace(CONTRACT, shadow=True, virtual_micro=5_000_000),
        replace(CONTRACT, reached=False, rests_us=8_000_000),
        replace(CONTRACT, stopped="contract.unreceipted"),
    )
    text = printed(replace(STATUS, market=replace(MARKET, contracts=kinds, overloaded=True, shadow=True)))
    for words in (
        "cores, OVERLOADED, only watches,",
        "consumer, not in force",
        "consumer, shadow",
        "would have come to 5.00 EUR",
        "consumer, silent",
        "rests for 8s",
        "contract.unreceipted",
    ):
        assert words in text


def test_top_has_a_line_for_each_contract_and_offer() -> None:
    lines = list(top_lines([STATUS, NodeStatus(node="other")]))
    assert (
        "alice-1: power with bob (consumer): 2 tasks, 0.40 cores at 0.016 EUR, 1.25 owed, 0.02 unsigned"
        in lines
    )
    assert "alice-1: alice/q/c asked of bob at 0.017: REQUESTED" in lines
    assert not any(line.startswith("other") for line in lines)


def test_why_something_moved_or_didnt() -> None:
    assert list(explained_lines(STATUS, "q/a")) == ["alice/q/a is away at bob for 1 min"]
    assert list(explained_lines(STATUS, "bills")) == ["bills/in stays: [market.policy] of this node says no"]
    assert len(list(explained_lines(STATUS, ""))) == 6
    assert list(explained_lines(NodeStatus(node="other"), "")) == []
    assert list(planned_lines(MARKET)) == [
        "would offer alice/q/b to bob by power at 0.016 a unit, and save 0.003000 a second",
        "alice/q/d isn't offered to bob (power): too dear",
        "bills/in stays: [market.policy] of this node says no",
    ]


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[NodeStatus]:
    """What the nodes say that are asked."""
    statuses = [STATUS]

    class Client:
        def __enter__(self) -> Client:
            return self

        def __exit__(self, *error: object) -> None:
            """Nothing is held."""

        def statuses(self, *, all: bool = False) -> list[object]:
            return [plain(each) for each in statuses]

    monkeypatch.setattr("medusa.runtime.client.client.connect", lambda *where, **keys: Client())
    return statuses


def run(*arguments: str, code: int = 0) -> str:
    done = CliRunner().invoke(main, ["explain", *arguments])
    assert done.exit_code == code, done.output
    return done.output


WHERE = ("--node", "ipc:///n")


def test_explain_of_the_market(answers: list[NodeStatus]) -> None:
    assert "alice/q/a is away at bob" in run("market/q/a", *WHERE)
    assert "would offer alice/q/b" in run("market/", "--dry-run", *WHERE)
    assert "would offer" not in run("market/q/d", "--dry-run", *WHERE)
    said = json.loads(run("market/bob", "--json", *WHERE))
    assert list(said["nodes"]) == ["alice-1"]


def test_slips(answers: list[NodeStatus]) -> None:
    assert "nothing is known there of 'nobody'" in run("market/nobody", *WHERE, code=1)
    assert "add --node" in run("market/", code=2)
    assert "--dry-run goes with market/ and --node" in run("q.json", "--dry-run", code=2)
    answers[:] = [NodeStatus(node="other")]
    assert "no node that answers trades load" in run("market/", *WHERE, code=1)


def test_the_client_has_what_the_command_asks() -> None:
    assert callable(Federation.statuses)
