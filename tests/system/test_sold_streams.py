"""A contract about rows of a stream, over real processes: paid, metered, and credited where broken."""

from __future__ import annotations

import json
import shlex
import signal
import threading
import time

import pytest
from click.testing import CliRunner

import medusa as md
from medusa.cli.main import main
from medusa.errors import LinkError
from medusa.nodes.market.content_terms import ContentTerms
from medusa.query.structs import Field
from medusa.runtime.contracts.content import content_text
from medusa.runtime.keys.key_files import CurveKey, ParticipantKey, read_public, write_key
from tests.system.nodes import ForkedNodes, until

pytestmark = pytest.mark.system

OWNERS = {"shop": "acme", "desk": "bigco"}
"""Node -> whose it is: acme sells, bigco buys."""

SCHEMA = {"ts": "int64", "v": "int64", "secret": "utf8"}
SOLD = (Field("ts", "int64"), Field("v", "int64"))
PRICE_MICRO, BREACH_MICRO = 2_000, 500_000
MARK = "nobody but acme may see this"
YEAR_US = 365 * 86_400 * 1_000_000


def asked(command, code=0):
    done = CliRunner().invoke(main, shlex.split(command))
    assert done.exit_code == code, done.output
    return done.output


class Market(ForkedNodes):
    """A node of each, which trade with each other; each has a client that may do everything at its own."""

    def __init__(self, folder):
        super().__init__(folder, list(OWNERS), limits='checkpoint_every = "50ms"')
        for node, owner in OWNERS.items():
            write_key(folder / f"{node}.key", "node", CurveKey.new())
            write_key(folder / f"{owner}.key", "participant", ParticipantKey.new())
            write_key(folder / f"of-{owner}.key", "client", CurveKey.new())
            (folder / f"{owner}.contracts").mkdir()
        for node in OWNERS:
            self.config(node).write_text(self.text(node))

    def public(self, name):
        return read_public(self.folder / f"{name}.pub")

    def text(self, node):
        owner = OWNERS[node]
        (other,) = (each for each in OWNERS if each != node)
        lines = [f'name = "{node}"', f'listen = "{self.addresses[node]}"', f'data = "{node}.data"']
        lines += ['federation = "fed"', f'participant = "{owner}"', "[keys]", f'node = "{node}.key"']
        lines += ["[limits]", self.limits, "[dht]", f'key = "{owner}.key"', 'publish = ["*"]']
        for each in OWNERS.values():
            lines += [f"[participants.{each}]", f'key = "{self.public(each)}"']
        lines += [f"[peers.{other}]", f'address = "{self.addresses[other]}"']
        lines += [f'participant = "{OWNERS[other]}"', f'key = "{self.public(other)}"']
        lines += ["[clients.admin]", f'key = "{self.public(f"of-{owner}")}"', "status = true"]
        lines += ['deploy = ["*"]', 'publish = ["*"]', 'subscribe = ["*"]']
        lines += ["[node]", 'capacity = "1 cores"', "[market]", f'contracts = "{owner}.contracts"']
        lines += [f'key = "{owner}.key"', "[market.cost]", 'unit = "0.02"']
        lines += [f"[market.partners.{OWNERS[other]}]", f'node = "{other}"']
        return "\n".join(lines) + "\n"

    def connect(self, node):
        keys = {"key": self.folder / f"of-{OWNERS[node]}.key", "server_key": self.folder / f"{node}.pub"}
        return md.connect(self.addresses[node], timeout="30s", **keys)

    def sign(self, **terms):
        """Both sign a contract, and have it in their folders; the file."""
        at_us = int(time.time()) * 1_000_000
        made = {
            "id": "cars",
            "version": 1,
            "provider": "acme",
            "consumer": "bigco",
            "begins_us": at_us - 60_000_000,
            "ends_us": at_us + YEAR_US,
            "notice_s": 0,
            "streams": {"cars.out": SOLD},
            "price_micro": PRICE_MICRO,
            "price_unit": "row",
            "currency": "EUR",
            "latency_us": 1_000_000,
            "availability_ppm": 800_000,
            "breach_micro": BREACH_MICRO,
            "interval_s": 5,
        }
        text = content_text(ContentTerms(**{**made, **terms}))
        file = self.folder / "cars.contract"
        (self.folder / "cars.odcs.yaml").write_text(text)
        signs = f"--federation fed --signer {self.folder}/"
        asked(f"contract propose {self.folder}/cars.odcs.yaml {signs}acme.key --participant acme -o {file}")
        key = f"--partner-key {self.folder}/acme.pub"
        asked(f"contract accept {file} {signs}bigco.key --participant bigco {key}")
        self.give(file)
        return file

    def give(self, file):
        """Put a file into both folders, and have the nodes read them."""
        for node, owner in OWNERS.items():
            (self.folder / f"{owner}.contracts" / file.name).write_text(file.read_text())
            self.processes[node].send_signal(signal.SIGHUP)

    def statement(self, owner, file, code=0):
        """Who owes whom, by what one of the two has."""
        command = f"contract statement {file} --receipts {self.receipts(owner)} {self.keys()} --json"
        return json.loads(asked(command, code))

    def receipts(self, owner):
        folder = self.folder / f"{owner}.contracts"
        return until(lambda: list(folder.glob("*.receipts")), what="there are receipts")[0]

    def keys(self):
        return f"--provider-key {self.folder}/acme.pub --consumer-key {self.folder}/bigco.pub"


def rows_of(ts):
    return {"ts": ts, "v": [each % 7 for each in ts], "secret": [MARK] * len(ts)}


class Publisher:
    """Puts rows into acme's stream until it is told to rest, some each tenth of a second."""

    def __init__(self, fed):
        self._fed, self.rows = fed, 0
        self._rests, self._ends = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._ends.set()
        self._thread.join()

    def _run(self):
        while not self._ends.wait(0.1):
            if not self._rests.is_set():
                ts = list(range(self.rows, self.rows + 5))
                self._fed.publish("cars", rows_of(ts))
                self.rows += len(ts)

    def rest(self):
        self._rests.set()

    def go_on(self):
        self._rests.clear()


@pytest.fixture
def market(tmp_path):
    made = Market(tmp_path)
    yield made
    made.close()


def counting(stream):
    q = md.Query("counting")
    q.sink("out", q.source("cars", of=stream).filter("v >= 0", name="some"))
    return q


def stream_of(fed):
    def found():
        try:
            return fed.stream("acme/cars.out")
        except LinkError:
            return None

    return until(found, what="bigco finds the stream")


def refused(fed, q):
    with pytest.raises(LinkError) as refusal:
        fed.deploy(q)
    return refusal.value.code


def contract_of(fed):
    """How the contract stands at a node."""
    return next((each for each in fed.status()["market"]["contracts"] if each["id"] == "cars"), None)


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
        ours, theirs = market.statement("acme", file), market.statement("bigco", file)
        assert ours == theirs
        assert ours["breaches_micro"] % BREACH_MICRO == 0
        assert ours["owed_micro"] == publisher.rows * PRICE_MICRO - ours["breaches_micro"]
        shown = asked(f"contract statement {file} {market.keys()} --receipts {market.receipts('acme')}")
        assert "breaches" in shown
        for node in OWNERS:
            with market.connect(node) as fed:
                found = contract_of(fed)
                assert (found["owed_micro"], found["disputes"]) == (ours["owed_micro"], 0)
        assert not any(MARK.encode() in each.read_bytes() for each in files_of(market.data("desk"))), (
            "never left"
        )


def breaches(market, file):
    return market.statement("bigco", file)["breaches_micro"]


def done(market, owner, file):
    """What rows have come to, before credits."""
    found = market.statement(owner, file)
    return found["amount_micro"] + found["breaches_micro"]


def files_of(folder):
    return [each for each in folder.rglob("*") if each.is_file()]


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
