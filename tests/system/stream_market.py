"""Owners whose nodes sell each other streams, over real processes: their keys, files and statements."""

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
from tests.system.nodes import PATIENT_READERS, TIMEOUT, ForkedNodes, until

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

    def __init__(self, folder, owners=None, unit=None):
        self.owners = owners or OWNERS
        self.unit = unit or {}
        super().__init__(folder, list(self.owners), limits=f'checkpoint_every = "50ms"\n{PATIENT_READERS}')
        for node in self.owners:
            write_key(folder / f"{node}.key", "node", CurveKey.new())
        for owner in dict.fromkeys(self.owners.values()):
            write_key(folder / f"{owner}.key", "participant", ParticipantKey.new())
            write_key(folder / f"of-{owner}.key", "client", CurveKey.new())
            (folder / f"{owner}.contracts").mkdir()
        for node in self.owners:
            self.config(node).write_text(self.text(node))

    def public(self, name):
        return read_public(self.folder / f"{name}.pub")

    def text(self, node, more=""):
        owner = self.owners[node]
        others = [each for each in self.owners if each != node]
        lines = [f'name = "{node}"', f'listen = "{self.addresses[node]}"', f'data = "{node}.data"']
        lines += ['federation = "fed"', f'participant = "{owner}"', "[keys]", f'node = "{node}.key"']
        lines += ["[limits]", self.limits, "[dht]", f'key = "{owner}.key"', 'publish = ["*"]']
        for each in dict.fromkeys(self.owners.values()):
            lines += [f"[participants.{each}]", f'key = "{self.public(each)}"']
        for other in others:
            lines += [f"[peers.{other}]", f'address = "{self.addresses[other]}"']
            lines += [f'participant = "{self.owners[other]}"', f'key = "{self.public(other)}"']
        lines += ["[clients.admin]", f'key = "{self.public(f"of-{owner}")}"', "status = true"]
        lines += ['deploy = ["*"]', 'publish = ["*"]', 'subscribe = ["*"]']
        if node in self.trading():
            lines += ["[node]", 'capacity = "1 cores"', "[market]", f'contracts = "{owner}.contracts"']
            lines += [f'key = "{owner}.key"', "[market.cost]", f'unit = "{self.unit.get(owner, "0.02")}"']
            for other in self.trading():
                if self.owners[other] != owner:
                    lines += [f"[market.partners.{self.owners[other]}]", f'node = "{other}"']
        return "\n".join(lines) + f"\n{more}\n"

    def trading(self):
        """Of each owner the first node."""
        first = {}
        for node, owner in self.owners.items():
            first.setdefault(owner, node)
        return list(first.values())

    def configure(self, node, more):
        """What stands in the file of a node besides, from now on."""
        self.config(node).write_text(self.text(node, more))
        if node in self.processes:
            self.processes[node].send_signal(signal.SIGHUP)

    def connect(self, node):
        keys = {"key": self.folder / f"of-{self.owners[node]}.key", "server_key": self.folder / f"{node}.pub"}
        return md.connect(self.addresses[node], timeout=TIMEOUT, **keys)

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
        made |= terms
        draft = self.folder / f"{made['id']}.odcs.yaml"
        draft.write_text(content_text(ContentTerms(**made)))
        return self.sign_terms(draft, made["id"], made["provider"], made["consumer"])

    def sign_terms(self, draft, name, provider, consumer):
        """As ``sign``, of terms in a file."""
        file = self.folder / f"{name}.contract"
        signs = f"--federation fed --signer {self.folder}/"
        asked(f"contract propose {draft} {signs}{provider}.key --participant {provider} -o {file}")
        key = f"--partner-key {self.folder}/{provider}.pub"
        asked(f"contract accept {file} {signs}{consumer}.key --participant {consumer} {key}")
        self.give(file, (provider, consumer))
        return file

    def give(self, file, owners=("acme", "bigco")):
        """Put a file into the folders of both, and have the nodes read them."""
        for node, owner in self.owners.items():
            if owner in owners:
                (self.folder / f"{owner}.contracts" / file.name).write_text(file.read_text())
                if node in self.processes:
                    self.processes[node].send_signal(signal.SIGHUP)

    def statement(self, owner, file, provider="acme", consumer="bigco"):
        """Who owes whom, by what one of the two has."""
        receipts = self.receipts(owner, file.stem)
        keys = self.keys(provider, consumer)
        return json.loads(asked(f"contract statement {file} --receipts {receipts} {keys} --json"))

    def receipts(self, owner, contract="cars"):
        folder = self.folder / f"{owner}.contracts"
        return until(lambda: list(folder.glob(f"*.{contract}.receipts")), what="there are receipts")[0]

    def keys(self, provider="acme", consumer="bigco"):
        return f"--provider-key {self.folder}/{provider}.pub --consumer-key {self.folder}/{consumer}.pub"


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


def counting(stream):
    q = md.Query("counting")
    q.sink("out", q.source("cars", of=stream).filter("v >= 0", name="some"))
    return q


def stream_of(fed, name="acme/cars.out"):
    def found():
        try:
            return fed.stream(name)
        except LinkError:
            return None

    return until(found, what="the stream is found")


def refused(fed, q):
    with pytest.raises(LinkError) as refusal:
        fed.deploy(q)
    return refusal.value.code


def contract_of(fed, name="cars"):
    """How a contract stands at a node."""
    return next((each for each in fed.status()["market"]["contracts"] if each["id"] == name), None)


def breaches(market, file):
    return market.statement("bigco", file)["breaches_micro"]


def done(market, owner, file, **parties):
    """What rows have come to, before credits."""
    found = market.statement(owner, file, **parties)
    return found["amount_micro"] + found["breaches_micro"]


def files_of(folder):
    return [each for each in folder.rglob("*") if each.is_file()]
