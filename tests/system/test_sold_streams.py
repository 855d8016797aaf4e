"""A contract about rows of a stream, over real processes: paid, metered, and credited where broken."""

from __future__ import annotations

import pytest

from tests.system.nodes import until
from tests.system.stream_market import (
    BREACH_MICRO,
    MARK,
    OWNERS,
    PRICE_MICRO,
    SCHEMA,
    Market,
    Publisher,
    asked,
    breaches,
    contract_of,
    counting,
    done,
    files_of,
    refused,
    rows_of,
    stream_of,
)

pytestmark = pytest.mark.system


@pytest.fixture
def market(tmp_path):
    made = Market(tmp_path)
    yield made
    made.close()


def test_rows_are_sold_by_the_row_and_a_breach_is_credited(market, tmp_path):
    market.start()
    with market.connect("shop") as acme, market.connect("desk") as bigco:
        until(lambda: set(bigco.status()["peers"].values()) == {"up"}, what="both are there")
        acme.define("cars", SCHEMA, time="ts", unit="s", slack="1s")
        stream = stream_of(bigco)
        sold = stream.select("ts", "v")
        assert refused(bigco, counting(stream)) == refused(bigco, counting(sold)) == "E_NO_CONTRACT"

        file = market.sign()
        until(lambda: contract_of(acme) and contract_of(bigco), what="both have the contract")
        assert refused(bigco, counting(stream)) == "E_SCHEMA", "a column that isn't sold"
        bigco.deploy(counting(sold))
        with bigco.subscribe("counting.out", from_="oldest", timeout="60s") as trains:
            with Publisher(acme) as publisher:
                until(lambda: contract_of(bigco)["owed_micro"] > 0, what="rows are receipted")
                where = f"--node {market.addresses['shop']} --key {market.folder}/of-acme.key"
                where += f" --server-key {market.folder}/shop.pub"
                assert "0.002 EUR a row" in asked(f"status {where}")
                told = (
                    "contract cars: acme sells bigco cars.out for 0.002 EUR a row; 1 of bigco's queries read"
                )
                assert told in asked(f"explain market/ {where}")
                publisher.rest()
                until(lambda: breaches(market, file) > 0, what="a breach is credited")
                publisher.go_on()
                paid = contract_of(bigco)["receipts"]
                until(lambda: contract_of(bigco)["receipts"] >= paid + 2, what="it is receipted again")
            acme.finish("cars")
            got = trains.table()
        assert got.column_names == ["ts", "v"]
        assert got["ts"].to_pylist() == list(range(publisher.rows)), "all rows came, each once"
        assert got["v"].to_pylist() == rows_of(range(publisher.rows))["v"]
        bigco.undeploy("counting")
        until(lambda: contract_of(acme)["readers"] == 0 == contract_of(bigco)["readers"], what="nobody reads")
        until(lambda: done(market, "acme", file) == publisher.rows * PRICE_MICRO, what="all rows are paid")
        until(lambda: market.statement("acme", file) == market.statement("bigco", file), what="both agree")
        ours = market.statement("acme", file)
        assert ours["breaches_micro"] % BREACH_MICRO == 0
        assert ours["owed_micro"] == publisher.rows * PRICE_MICRO - ours["breaches_micro"]
        shown = asked(f"contract statement {file} {market.keys()} --receipts {market.receipts('acme')}")
        assert "breaches" in shown
        for node in OWNERS:
            with market.connect(node) as fed:
                until(
                    lambda fed=fed: contract_of(fed)["owed_micro"] == ours["owed_micro"],
                    what="the node knows",
                )
                assert contract_of(fed)["disputes"] == 0
        assert not any(MARK.encode() in each.read_bytes() for each in files_of(market.data("desk"))), (
            "never left"
        )


def test_who_sells_dies_and_the_intervals_are_credited(market):
    market.start()
    with market.connect("shop") as acme, market.connect("desk") as bigco:
        until(lambda: set(bigco.status()["peers"].values()) == {"up"}, what="both are there")
        acme.define("cars", SCHEMA, time="ts", unit="s", slack="1s")
        sold = stream_of(bigco).select("ts", "v")
        file = market.sign(interval_s=3, price_unit="minute")
        until(lambda: contract_of(acme) and contract_of(bigco), what="both have the contract")
        bigco.deploy(counting(sold))
        until(lambda: contract_of(bigco)["receipts"] > 0, what="time is receipted, whether rows come or not")
    before = market.statement("bigco", file)
    market.kill("shop")
    with market.connect("desk") as bigco:
        until(lambda: bigco.status()["peers"]["shop"] != "up", what="bigco sees that it is gone")
        market.start("shop")
        until(lambda: contract_of(bigco)["receipts"] > before["receipts"], what="it is receipted again")
        with market.connect("shop") as acme:
            until(lambda: contract_of(acme)["readers"] == 1, what="it is still read")
        until(lambda: breaches(market, file) > before["breaches_micro"], what="it is broken")
        bigco.undeploy("counting")
        until(lambda: market.statement("acme", file) == market.statement("bigco", file), what="both agree")
    # Three seconds of a minute are a twentieth of the price, for each interval that was begun.
    paid = done(market, "acme", file)
    intervals = sum(each["end_row"] - each["begin_row"] for each in market.statement("acme", file)["lines"])
    assert intervals > 0
    assert paid == intervals * PRICE_MICRO // 20


def test_a_contract_that_is_revoked_sells_no_more(market):
    market.start()
    with market.connect("shop") as acme, market.connect("desk") as bigco:
        until(lambda: set(bigco.status()["peers"].values()) == {"up"}, what="both are there")
        acme.define("cars", SCHEMA, time="ts", unit="s", slack="1s")
        sold = stream_of(bigco).select("ts", "v")
        file = market.sign(latency_us=0, availability_ppm=0, breach_micro=0, interval_s=2)
        until(lambda: contract_of(acme) and contract_of(bigco), what="both have the contract")
        bigco.deploy(counting(sold))
        with Publisher(acme) as publisher:
            until(lambda: contract_of(acme)["owed_micro"] > 0, what="rows are receipted")
            revoked = market.folder / "cars.revoked"
            signs = f"--signer {market.folder}/acme.key --participant acme --reason over"
            asked(f"contract revoke {file} {signs} -o {revoked}")
            market.give(revoked)
            until(lambda: not contract_of(acme)["in_force"], what="it counts no more")
            until(lambda: contract_of(acme)["readers"] == 0, what="nobody reads")
            read = contract_of(bigco)["owed_micro"]
            until(lambda: publisher.rows * PRICE_MICRO > 2 * read, what="acme's stream goes on")
        until(lambda: market.statement("acme", file) == market.statement("bigco", file), what="both agree")
        assert done(market, "acme", file) < publisher.rows * PRICE_MICRO, "later rows weren't sold"
        bigco.undeploy("counting")
        assert refused(bigco, counting(sold)) == "E_NO_CONTRACT"
