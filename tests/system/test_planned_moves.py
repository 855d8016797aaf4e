"""A fragment goes to another participant at a signal, as a contract plans it, and comes home at another."""

from __future__ import annotations

import contextlib
import time

import pytest

import medusa as md
from medusa.errors import LinkError
from tests.system.nodes import AGAIN, DEADLINE_S, eventually, until
from tests.system.stream_market import Market, asked, contract_of

pytestmark = pytest.mark.system

OWNERS = {"edge": "bigco", "core": "acme", "home": "bigco"}
"""Bigco's query runs at edge, home stands by; acme's core takes what is planned, and nothing else."""

SCHEMA = {"ts": "int64", "v": "int64"}
TERMS = """
contract = "plans"
provider = "acme"
consumer = "bigco"
begins = 2026-01-01
ends = 2030-01-01
[price]
amount = "0.02"
[load]
most = "4 units/s"
[billing]
interval = "2s"
[tasks]
planned = ["jams/slow for 0.02"]
"""


def query():
    q = md.Query("jams")
    cars = q.source("cars", SCHEMA, time="ts", unit="ms")
    slow = cars.filter("v < 50", name="slow")
    q.sink("out", slow.window("1s").aggregate(n=md.count(), s="sum(v)", name="counted"))
    return q


def rows(begin, count=200):
    return {"ts": list(range(begin, begin + count)), "v": [n * 37 % 101 for n in range(begin, begin + count)]}


AT = {"home": ["cars", "counted", "out"], "edge": ["slow"]}


@pytest.fixture
def market(tmp_path):
    made = Market(tmp_path, OWNERS, unit={"acme": "90"})
    yield made
    made.close()


class Flow:
    """Rows that are published at home, and what came of them."""

    def __init__(self, fed):
        self._fed, self.rows = fed, 0

    def some(self):
        self._fed.publish("jams.cars", rows(self.rows))
        self.rows += 200
        return True

    def until(self, condition, what):
        """Publish until something is so."""
        return until(lambda: self.some() and condition(), what=what, every_s=0.05, deadline_s=3 * DEADLINE_S)


def test_a_planned_move_goes_at_its_signal_and_comes_home_at_the_next(market, record_property):
    draft = market.folder / "plans.toml"
    draft.write_text(TERMS)
    file = market.sign_terms(draft, "plans", "acme", "bigco")
    market.start()
    with market.connect("edge") as bigco, market.connect("core") as acme, market.connect("home") as home:
        until(lambda: set(bigco.status()["peers"].values()) == {"up"}, what="all are there")
        until(lambda: set(home.status()["peers"].values()) == {"up"}, what="all are there")
        bigco.deploy(query(), at=AT, standby={"edge": ["home"]}, checkpoint_every="100ms")
        flow = Flow(home)
        with home.subscribe("jams.out", from_="oldest", timeout="60s") as trains:
            with pytest.raises(LinkError) as refusal:
                bigco.move("jams/counted", to="core")
            assert refusal.value.code == "E_ROLE", "what isn't planned goes nowhere"
            flow.until(lambda: contract_of(bigco, "plans")["room"] is not None, "acme has said its price")

            def goes():
                began = time.monotonic()
                try:
                    found = bigco.move("jams/slow", to="core")
                except LinkError as error:
                    if error.code not in AGAIN:
                        raise
                    return None
                return found, time.monotonic() - began

            found, took_s = flow.until(goes, "it is known what a row takes, and it goes")
            assert found["node"] == "core"
            print(f"went {took_s * 1000:.0f} ms after the signal, pause {found['pause_us'] / 1000:.1f} ms")
            record_property("went_ms", took_s * 1000)

            def away():
                """As the market knows it; where acme wasn't heard for a moment it is home, and goes again."""
                if found := bigco.status()["market"]["away"]:
                    return found
                with contextlib.suppress(LinkError):  # It is there, and the market hears it in a moment.
                    goes()
                return []

            (found,) = flow.until(away, "the market knows")
            assert (found["task"], found["partner"], found["price_micro"]) == (
                "bigco/jams/slow",
                "acme",
                20_000,
            )
            flow.until(lambda: away() and contract_of(acme, "plans")["owed_micro"] > 0, "its rows are paid")
            # It would cost acme far more than it earns, and stays.
            assert [each["recalled"] for each in flow.until(away, "it is there")] == [""]
            began = time.monotonic()
            eventually(
                lambda: asked(
                    f"move jams/slow --to edge --node {market.addresses['edge']}"
                    f" --key {market.folder}/of-bigco.key --server-key {market.folder}/edge.pub"
                )
            )
            print(f"home {(time.monotonic() - began) * 1000:.0f} ms after the signal")
            until(lambda: bigco.status()["market"]["away"] == [], what="the market knows")
            flow.some()
            home.finish("jams.cars")
            got = trains.table().to_pylist()
    everything = {name: [v for n in range(0, flow.rows, 200) for v in rows(n)[name]] for name in SCHEMA}
    assert got == md.collect(query(), cars=everything)["out"].to_pylist()
    until(lambda: market.statement("acme", file) == market.statement("bigco", file), what="both agree")
    assert market.statement("acme", file)["amount_micro"] > 0
