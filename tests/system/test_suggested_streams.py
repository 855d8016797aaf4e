"""Who sells a stream suggests another source: the reader goes on there at the same row, and pays there."""

from __future__ import annotations

import pytest

import medusa as md
from tests.system.nodes import until
from tests.system.stream_market import (
    MARK,
    PRICE_MICRO,
    SCHEMA,
    SOLD,
    Market,
    Publisher,
    contract_of,
    counting,
    done,
    files_of,
    rows_of,
    stream_of,
)

pytestmark = pytest.mark.system

OWNERS = {"shop": "acme", "mirror": "carol", "desk": "bigco"}
"""Acme has the stream, carol a replica of it, bigco reads it."""

PLAIN = {"latency_us": 0, "availability_ppm": 0, "breach_micro": 0, "interval_s": 2}
FOLLOWS = '[market.policy]\nfollow = ["acme"]'
OFFERS = '[offers.carol]\nstreams = ["cars.out"]'
SUGGESTS = f'{OFFERS}\n[market.suggest]\n"cars.out" = "carol"'


def replica(stream):
    """The same rows under the same name, at carol's."""
    q = md.Query("cars")
    q.sink("out", q.source("all", of=stream))
    return q


@pytest.fixture
def market(tmp_path):
    made = Market(tmp_path, OWNERS)
    yield made
    made.close()


def read_from(fed):
    """Nodes from which bigco's query reads."""
    return [each["from"] for of in fed.status()["fragments"] for each in of["inputs"]]


def test_a_reader_switches_at_the_same_row_and_pays_the_other_one(market):
    market.configure("shop", OFFERS)
    market.configure("desk", FOLLOWS)
    market.start()
    with market.connect("shop") as acme, market.connect("mirror") as carol, market.connect("desk") as bigco:
        until(lambda: set(bigco.status()["peers"].values()) == {"up"}, what="all are there")
        acme.define("cars", SCHEMA, time="ts", unit="s", slack="1s")
        with Publisher(acme) as publisher:
            until(lambda: publisher.rows > 20, what="rows that carol never has")
            carol.deploy(replica(stream_of(carol)))
            until(lambda: publisher.rows > 40, what="rows that bigco never has")
            ours = market.sign(**PLAIN)
            theirs = market.sign(id="cars2", provider="carol", streams={"cars.out": SOLD}, **PLAIN)
            until(lambda: contract_of(acme) and contract_of(carol, "cars2"), what="contracts count")
            until(lambda: contract_of(bigco) and contract_of(bigco, "cars2"), what="contracts count")
            bigco.deploy(counting(stream_of(bigco).select("ts", "v")))
            with bigco.subscribe("counting.out", from_="oldest", timeout="180s") as trains:
                until(lambda: contract_of(bigco)["owed_micro"] > 0, what="rows of acme are paid")
                assert read_from(bigco) == ["shop"]
                market.configure("shop", SUGGESTS)
                until(lambda: read_from(bigco) == ["mirror"], what="bigco reads at carol's")
                until(lambda: contract_of(acme)["readers"] == 0, what="acme keeps nothing more for bigco")
                until(lambda: contract_of(bigco, "cars2")["owed_micro"] > 0, what="rows of carol are paid")
                for node in ("mirror", "desk"):  # What was switched is so after a death, too.
                    market.kill(node)
                    market.start(node)
                before = publisher.rows
                until(lambda: publisher.rows > before + 40, what="rows that come after that")
                publisher.rest()
                acme.finish("cars")
                got = trains.table()
        first = got["ts"].to_pylist()[0]
        assert got["ts"].to_pylist() == list(range(first, publisher.rows)), "each row once, in order"
        assert got["v"].to_pylist() == rows_of(got["ts"].to_pylist())["v"]
        assert first >= 40
        bigco.undeploy("counting")

        def paid():
            return done(market, "acme", ours), done(market, "carol", theirs, provider="carol")

        until(
            lambda: sum(paid()) == got.num_rows * PRICE_MICRO, what=lambda: f"{paid()} of {got.num_rows} rows"
        )
        assert min(paid()) > 0

        def agree(file, provider="acme"):
            return market.statement(provider, file, provider) == market.statement("bigco", file, provider)

        until(lambda: agree(ours) and agree(theirs, "carol"), what="each two agree")
        assert not any(MARK.encode() in each.read_bytes() for each in files_of(market.data("desk")))


def test_who_does_not_follow_suggestions_stays(market):
    market.configure("shop", SUGGESTS)
    market.start()
    with market.connect("shop") as acme, market.connect("mirror") as carol, market.connect("desk") as bigco:
        until(lambda: set(bigco.status()["peers"].values()) == {"up"}, what="all are there")
        acme.define("cars", SCHEMA, time="ts", unit="s", slack="1s")
        carol.deploy(replica(stream_of(carol)))
        market.sign(**PLAIN)
        until(lambda: contract_of(acme) and contract_of(bigco), what="contracts count")
        bigco.deploy(counting(stream_of(bigco).select("ts", "v")))
        until(lambda: "E_POLICY" in market.log("shop"), what="acme hears that bigco stays")
        assert "a reader stays: it can't be sent elsewhere" in market.log("shop")
        assert read_from(bigco) == ["shop"]
        until(lambda: contract_of(acme)["readers"] == 1, what="bigco reads")
