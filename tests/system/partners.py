"""Nodes of owners that trade under a contract, and one that speaks the wire by hand, with a key of theirs."""

from __future__ import annotations

import contextlib
import itertools
import queue
import threading
import time

import msgspec
import zmq

import medusa as md
from medusa.market.contract.signed import (
    ContractDocument,
    RevocationDocument,
    countersign,
    document_to_text,
    sign_document,
)
from medusa.market.contract.terms import Contract, TaskTerms
from medusa.nodes.catalog.catalog import CATALOG, Catalog
from medusa.runtime.keys.key_files import (
    CurveKey,
    ParticipantKey,
    read_curve_key,
    read_participant_key,
    read_public,
    write_key,
)
from medusa.wire.codec import decode_frame, encode_frame
from medusa.wire.messages.commands import Reply
from medusa.wire.messages.links import Heartbeat, Hello, Refuse
from tests.system.nodes import DEADLINE_S, ForkedNodes, until

FEDERATION = "fed"
OWNERS = {"e": "alice", "m": "alice", "c": "alice", "s": "alice", "w": "alice", "h": "bob", "k": "carol"}
"""As of ``tests.nodes.abroad.lending``; carol has no contract with anybody."""

DAY_US = 86_400_000_000
COSTS = {"m": '[[0, "0"], [1, "100"]]', "h": '[[0, "0"], [1, "0.1"]]'}
"""What a core costs alice and bob: any load is too much for her, and hardly any for him."""

TASKS = TaskTerms(boxes=("filter", "running", "aggregate"), streams=("q.*",), columns=("ts", "k", "v"))


_LIVES = itertools.count(1 << 31)
"""Each life of a node that speaks by hand comes after those of the real one."""


def terms(**changes):
    """Bob runs load of alice's."""
    now_us = time.time_ns() // 1_000
    made = Contract(
        id="sold",
        provider="bob",
        consumer="alice",
        begins_us=now_us - DAY_US,
        ends_us=now_us + DAY_US,
        price_micro=2_000_000,
        range_micro=1_000_000,
        units_per_s_max_milli=1_000,
        interval_s=1,
        settlement_s=3_600,
        tasks=TASKS,
    )
    return msgspec.structs.replace(made, **changes)


class Partners(ForkedNodes):
    """Their nodes; ``m`` trades for alice and ``h`` for bob.

    Args:
        contract: that both have signed.
    """

    def __init__(self, folder, contract, nursery):
        super().__init__(folder, list(OWNERS), limits='checkpoint_every = "50ms"', nursery=nursery)
        for node in OWNERS:
            write_key(folder / f"{node}.key", "node", CurveKey.new())
        for owner in dict.fromkeys(OWNERS.values()):
            write_key(folder / f"{owner}.key", "participant", ParticipantKey.new())
            write_key(folder / f"of-{owner}.key", "client", CurveKey.new())
            (folder / f"contracts-{owner}").mkdir()
        self.contract = contract
        self.put("sold.contract", self.signed(contract))
        for node in OWNERS:
            self.config(node).write_text(self.text(node))

    # --- papers -----------------------------------------------------------------------------------------

    def signer(self, owner):
        return read_participant_key(self.folder / f"{owner}.key")

    def signed(self, contract):
        paper = ContractDocument(
            federation=FEDERATION, until_us=time.time_ns() // 1_000 + DAY_US, contract=contract
        )
        first = sign_document(paper, self.signer(contract.consumer), contract.consumer)
        return document_to_text(countersign(first, self.signer(contract.provider), contract.provider))

    def revoked(self, by):
        """It ends now."""
        now_us = time.time_ns() // 1_000
        paper = RevocationDocument(
            federation=FEDERATION,
            id=self.contract.id,
            version=self.contract.version,
            provider=self.contract.provider,
            consumer=self.contract.consumer,
            by=by,
            said_us=now_us,
            ends_us=now_us,
        )
        return document_to_text(sign_document(paper, self.signer(by), by))

    def put(self, name, text, *owners):
        """Into the folders of contracts."""
        for owner in owners or ("alice", "bob"):
            (self.folder / f"contracts-{owner}" / name).write_text(text)

    # --- configuration ----------------------------------------------------------------------------------

    def public(self, name):
        return read_public(self.folder / f"{name}.pub")

    def text(self, node):
        owner = OWNERS[node]
        lines = [f'name = "{node}"', f'listen = "{self.addresses[node]}"', f'data = "{node}.data"']
        lines += [
            f'federation = "{FEDERATION}"',
            f'participant = "{owner}"',
            "[keys]",
            f'node = "{node}.key"',
        ]
        lines += ["[limits]", self.limits, "[load]", 'half_life = "1s"']
        for each in dict.fromkeys(OWNERS.values()):
            lines += [f"[participants.{each}]", f'key = "{self.public(each)}"']
        for other, whose in OWNERS.items():
            if other != node:
                lines += [f"[peers.{other}]", f'address = "{self.addresses[other]}"']
                lines += [f'participant = "{whose}"', f'key = "{self.public(other)}"']
        lines += ["[clients.admin]", f'key = "{self.public(f"of-{owner}")}"', "status = true"]
        lines += ['deploy = ["*"]', 'publish = ["*"]', 'subscribe = ["*"]']
        if node in COSTS:
            partner, trades = ("bob", "h") if owner == "alice" else ("alice", "m")
            lines += ["[node]", 'capacity = "1 cores"', "[market]", f'contracts = "contracts-{owner}"']
            lines += [f'key = "{owner}.key"', 'keep = "2s"', "[market.cost]", f"cpu = {COSTS[node]}"]
            lines += [f"[market.partners.{partner}]", f'node = "{trades}"']
        return "\n".join(lines) + "\n"

    def connect(self, node):
        keys = {"key": self.folder / f"of-{OWNERS[node]}.key", "server_key": self.folder / f"{node}.pub"}
        return md.connect(self.addresses[node], timeout="30s", **keys)

    # --- what an honest side has ------------------------------------------------------------------------

    def catalog(self, node):
        """The newest one on its disk; a group appears whole, and may be gone again a moment later."""
        while True:
            groups = {path.parent.name: path for path in self.data(node).glob(f"*/{CATALOG}")}
            whole = [name for name in groups if not name.endswith(".tmp")]
            with contextlib.suppress(FileNotFoundError, ValueError):
                newest = max(whole, key=lambda name: int(name.rpartition("-")[2]))
                return Catalog.from_bytes(groups[newest].read_bytes(), node=node, where="disk")

    def papers(self, node):
        """The files of its contracts and receipts."""
        folder = self.folder / f"contracts-{OWNERS[node]}"
        return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}

    def state(self, node):
        """All that a hostile peer must not change: what runs for whom, what is permitted and agreed, what is
        owed, on disk and in memory."""
        with self.connect(node) as client:
            status = client.status()
        market, catalog = status["market"], self.catalog(node)
        [contract] = market["contracts"]
        owed = ("version", "ends_us", "receipts", "owed_micro", "settled_micro", "written_off_micro")
        return {
            "fragments": sorted(each["fragment"] for each in status["fragments"]),
            "contract": {name: contract[name] for name in owed},
            "tasks": [[each["task"] for each in market[side]] for side in ("away", "guests")],
            "moved": [market[name] for name in ("handed_over", "came_home", "took", "gave_back")],
            "permits": msgspec.to_builtins(catalog.permits),
            "deals": msgspec.to_builtins(catalog.market.trades),
            "ledger": catalog.market.ledger,
            "configurations": sorted(catalog.configurations),
            "on disk": sorted(catalog.fragments),
            "papers": self.papers(node),
        }

    def refused(self, node):
        """Code -> how often."""
        with self.connect(node) as client:
            return client.status()["refused"]


class NodeByHand:
    """Has the key of a node, listens where that is called, and says what it likes to other nodes.

    Args:
        claims: the name that it says; empty: the one that belongs to its key.

    Attributes:
        heard: (message, payload), all but words of the link, oldest first.
        codes: of refusals.
    """

    def __init__(self, nodes, name, *targets, claims=""):
        self._nodes, self._targets = nodes, targets
        self._context = zmq.Context()
        self.name, self.claims = name, claims or name
        self.heard, self.codes = [], []
        self._last: dict[str, list[bytes]] = {}
        self._key = read_curve_key(nodes.folder / f"{name}.key")
        self._listens = self._context.socket(zmq.ROUTER)
        self._key.lock(self._listens, server_key=None)
        self._listens.bind(nodes.addresses[name])
        self._calls = {target: self._call(target) for target in targets}
        self._hello = Hello.ours(self.claims, next(_LIVES), answer=True)
        self._out: queue.Queue[tuple[str, list[bytes]]] = queue.Queue()
        self._over = threading.Event()
        self.silent = threading.Event()
        self._welcomed = threading.Event()
        self._news = threading.Condition()
        self._number = iter(range(1, 1 << 62))
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _call(self, target):
        socket = self._context.socket(zmq.DEALER)
        self._key.lock(socket, server_key=self._nodes.public(target))
        socket.connect(self._nodes.addresses[target])
        return socket

    def _run(self):
        poller = zmq.Poller()
        poller.register(self._listens, zmq.POLLIN)
        for calls in self._calls.values():
            poller.register(calls, zmq.POLLIN)
        beat_s = 0.0
        while not self._over.is_set():
            for socket, _ in poller.poll(1):
                parts = socket.recv_multipart()
                route = parts[:1] if socket is self._listens else []
                self._take(socket, route, parts[len(route) :])
            while not self._out.empty():
                target, frames = self._out.get()
                self._last[target] = frames
                self._send(target, frames)
            if time.monotonic() >= beat_s and not self.silent.is_set():
                beat_s = time.monotonic() + 0.1
                first = Heartbeat(incarnation=self._hello.incarnation)
                for target in self._calls:
                    self._send(target, _frames(first if self._welcomed.is_set() else self._hello))

    def _send(self, target, frames):
        with contextlib.suppress(zmq.Again):  # It was put out.
            self._calls[target].send_multipart(frames, zmq.NOBLOCK)

    def _take(self, socket, route, parts):
        message, payload = decode_frame([memoryview(part) for part in parts])
        if isinstance(message, Hello):
            if route and message.answer:
                answer = msgspec.structs.replace(self._hello, answer=False, lane=message.lane)
                socket.send_multipart([*route, *_frames(answer)])
                for target in self._calls:  # It may have been restarted, and knows nobody then.
                    self._send(target, _frames(self._hello))
                    # On a busy machine we may have been silent for so long that our last word didn't count.
                    if self._welcomed.is_set() and target in self._last:
                        self._send(target, self._last[target])
            self._welcomed.set()
        elif isinstance(message, Heartbeat):
            if route and not self.silent.is_set():
                socket.send_multipart([*route, *_frames(Heartbeat(incarnation=self._hello.incarnation))])
        else:
            with self._news:
                if isinstance(message, Reply | Refuse) and message.code:
                    self.codes.append(message.code)
                self.heard.append((message, None if payload is None else bytes(payload)))
                self._news.notify_all()

    def let_in(self):
        """Wait until the others see a node that is there."""

        def is_up(target):
            with self._nodes.connect(target) as client:
                return client.status()["peers"][self.name] == "up"

        until(self._welcomed.is_set, what=f"{self.name} is called")
        for target in self._targets:
            until(lambda target=target: is_up(target), what=f"{self.name} is let in")
        return self

    def say(self, message, payload=None, *, to=""):
        """To one of those that it calls; empty: the first."""
        self._out.put((to or self._targets[0], _frames(message, payload)))

    def number(self):
        return next(self._number)

    def answer(self, kind, wanted=lambda message, payload: True, *, what="an answer", deadline_s=DEADLINE_S):
        """The oldest one of a kind that isn't taken yet; takes it."""
        found = []

        def find():
            found.extend(each for each in self.heard if isinstance(each[0], kind) and wanted(*each))
            return bool(found)

        with self._news:
            assert self._news.wait_for(find, deadline_s), f"not in time: {what}; heard {self.heard[-8:]}"
            self.heard.remove(found[0])
        return found[0]

    def forget(self):
        """All that was heard and not taken."""
        with self._news:
            self.heard.clear()

    def close(self):
        self._over.set()
        self._thread.join()
        self._context.destroy(linger=0)


def _frames(message, payload=None):
    return [bytes(part) for part in encode_frame(message, payload)]
