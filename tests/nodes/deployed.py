"""Brains of six nodes and a client, one step at a time: a message that arrives, or a write that ends.

    m (coordinator, the sink) ── t1 (the source) ── t2 ── t3 ── t4 ── t5

Between two steps anything may die. Time passes only when nothing else is left to do. Engines there are
none: what is opened and closed is noted.
"""

from __future__ import annotations

from collections import deque
from itertools import pairwise

from medusa.errors import RemoteProtocolError
from medusa.nodes.catalog.catalog import CATALOG, Catalog
from medusa.nodes.config.settings import Limits, Settings
from medusa.nodes.deploy.background_parsing import LOOP_BYTES_MAX
from medusa.nodes.node import NodeMind
from medusa.nodes.reports import Logged, Persisted, Started
from medusa.query.builder import Query
from medusa.query.codec import graph_to_msgpack
from medusa.wire.codec import decode_frame, encode_frame
from medusa.wire.limits import PROTOCOL_VERSION
from medusa.wire.link.session import SessionSettings
from medusa.wire.messages.commands import Deploy, Remove, Reply
from medusa.wire.messages.links import Hello
from medusa.wire.outbox import CloseFragment, Log, OpenFragment, Parse, Persist, Send
from tests.nodes.parsed import done

TARGETS = ("t1", "t2", "t3", "t4", "t5")
NODES = ("m", *TARGETS)
QUIET = SessionSettings(heartbeat_us=20_000_000, timeout_us=60_000_000, hello_us=100_000)
"""Nobody has to say that it is there: that is tested elsewhere."""
TIMEOUT_US = 1_000_000


def query(name="q"):
    q = Query(name)
    rows = q.source("rows", {"ts": "int64", "v": "int64"}, time="ts", unit="s")
    for target in TARGETS[1:]:
        rows = rows.filter("v > 0", name=f"on_{target}")
    q.sink("out", rows)
    return q


AT = (("t1", ("rows",)), *((target, (f"on_{target}",)) for target in TARGETS[1:]), ("m", ("out",)))


class Machine:
    """One node: a brain while it lives, and a disk."""

    def __init__(self, town, name, peers):
        self.town, self.name = town, name
        self.settings = Settings(
            name=name,
            listen="ipc:///x",
            data=name,
            peers=dict.fromkeys(peers, "ipc:///y"),
            limits=Limits(deploy_timeout_us=TIMEOUT_US),
        )
        self.disk = None
        self.full = self.hangs = False
        self.lives = 0
        self.brain = None
        self.start()

    def start(self):
        self.lives += 1
        catalog = Catalog.from_bytes(self.disk, node=self.name, where="disk") if self.disk else None
        self.brain = NodeMind(
            self.settings,
            incarnation=self.lives,
            catalog=catalog,
            session=QUIET,
            first_token=1000 * self.lives,
        )
        self.unsynced, self.held, self.parsing = [], [], []
        self.engine = set(self.brain.fragments)
        self.wake_us = 0
        self.brain.parsing.loop_bytes_max = self.town.loop_bytes_max
        self.brain.report(self.town.now_us, Started())
        self.perform()

    def die(self):
        self.brain = None
        self.town.forget(self.name)

    def perform(self):
        while effects := self.brain.outbox.take():
            for effect in effects:
                match effect:
                    case Send(after=after) if after in [each.token for each in self.unsynced]:
                        self.held.append(effect)
                    case Send():
                        self.town.send(self.name, effect)
                    case Persist():
                        self.unsynced.append(effect)
                        self.town.steps.append(("disk", self.name, self.lives, None, None))
                    case Log():
                        self.brain.report(self.town.now_us, Logged(effect.fragment, True))
                    case Parse():
                        self.parsing.append(effect)
                        self.town.steps.append(("parser", self.name, self.lives, None, None))
                    case OpenFragment():
                        self.engine.add(effect.fragment)
                    case CloseFragment():
                        self.engine.discard(effect.fragment)
        self.wake_us = self.brain.wake_at_us(self.town.now_us)

    def synced(self):
        """The oldest write ends."""
        write = self.unsynced.pop(0)
        if not self.full and CATALOG in write.files:
            self.disk = bytes(write.files[CATALOG])
        held, self.held = self.held, [send for send in self.held if send.after != write.token]
        for send in held if not self.full else []:
            if send.after == write.token:
                self.town.send(self.name, send)
        self.brain.report(
            self.town.now_us, Persisted(write.token, not self.full, "full" if self.full else "")
        )
        self.perform()

    def parsed(self):
        """What is being read has been."""
        done(self.brain, self.town.now_us, self.parsing.pop(0))
        self.perform()

    def take(self, source, frames):
        if isinstance(message := decode_frame(frames, peer=source)[0], Hello):
            self.brain.admit(message)
        try:
            self.brain.receive(self.town.now_us, source, *decode_frame(frames, peer=source))
        except RemoteProtocolError as error:
            raise AssertionError(f"{self.name} hears of {source}: {error}") from error
        self.perform()

    def tick(self):
        self.wake_us = self.town.now_us + 50_000
        self.brain.tick(self.town.now_us)
        self.perform()

    def remembered(self):
        """Fragments, owners and deployments, as they are on the disk."""
        catalog = (
            Catalog.from_bytes(self.disk, node=self.name, where="disk") if self.disk else Catalog(self.name)
        )
        return sorted(catalog.fragments), catalog.owners, {k: v.state for k, v in catalog.deployments.items()}


class Town:
    """All of them, and client x of the coordinator."""

    def __init__(self, *, strangers=(), loop_bytes_max=LOOP_BYTES_MAX):
        """``strangers``: they and t3 have never heard of each other."""
        self.loop_bytes_max = loop_bytes_max
        self.now_us = 0
        self.steps = deque()
        """What can happen next: (kind, at whom, in which life, from whom, frames)."""
        self.waiting = {}
        self.done = 0
        self.replies = {}
        self.asked = None
        self.machines = {}
        neighbours = {name: {"m"} for name in TARGETS} | {"m": set(TARGETS)}
        for one, other in pairwise(TARGETS):
            neighbours[one].add(other)
            neighbours[other].add(one)
        for stranger in strangers:
            neighbours["t3"].discard(stranger)
            neighbours[stranger].discard("t3")
        for name in NODES:
            self.machines[name] = Machine(self, name, sorted(neighbours[name]))
        self.settle(until_us=300_000)
        self.hello()
        self.settle()

    def forget(self, name):
        """What is under way to it, from it, or on its disk without an answer, is gone."""
        self.steps = deque(step for step in self.steps if name not in (step[1], step[3]))
        self.waiting.pop(name, None)

    def send(self, source, effect):
        frames = [bytes(part) for part in encode_frame(effect.message, effect.payload)]
        if effect.peer == "x":
            if isinstance(effect.message, Reply):
                self.replies[effect.message.request] = effect.message.code
            return
        other = self.machines.get(effect.peer)
        if other is not None and other.brain is not None:
            self.steps.append(("message", effect.peer, other.lives, source, frames))

    def step(self):
        """The next thing happens; whether there was one."""
        if not self.steps:
            return False
        kind, name, life, source, frames = step = self.steps.popleft()
        machine = self.machines[name]
        if machine.hangs:
            self.waiting.setdefault(name, []).append(step)
        elif machine.brain is not None and machine.lives == life:
            self.done += 1
            if kind == "disk":
                machine.synced()
            elif kind == "parser":
                machine.parsed()
            else:
                machine.take(source, frames)
        return True

    def pass_time(self):
        alive = [each for each in self.machines.values() if each.brain is not None and not each.hangs]
        self.now_us = max(self.now_us + 1, min(each.wake_us for each in alive))
        for each in alive:
            if each.wake_us <= self.now_us:
                each.tick()

    def settle(self, done=lambda: False, *, until_us=None):
        """Go on until then, or until it is done."""
        until_us = self.now_us if until_us is None else until_us
        while not done():
            if not self.step():
                if self.now_us >= until_us:
                    break
                self.pass_time()

    def heal(self):
        """Who hung goes on, who died is back, disks have room; then all comes to rest."""
        for name, machine in self.machines.items():
            machine.full = False
            if machine.hangs:
                machine.hangs = False
                self.steps.extend(self.waiting.pop(name, []))
            if machine.brain is None:
                self.restart(name)
        self.settle(until_us=self.now_us + 3 * TIMEOUT_US)

    def restart(self, name):
        self.machines[name].start()
        if name == "m":
            self.hello()
            self.ask_again()

    # --- the client ---------------------------------------------------------------------------------

    def hello(self):
        machine = self.machines["m"]
        hello = Hello(version=PROTOCOL_VERSION, node="x", incarnation=1, client=True, answer=True)
        self.steps.append(("message", "m", machine.lives, "x", [bytes(p) for p in encode_frame(hello)]))

    def deploy(self, request):
        document = graph_to_msgpack(query().graph)
        self.ask(Deploy(request=request, at=AT), document)

    def undeploy(self, request):
        self.ask(Remove(request=request, query="q"), None)

    def ask(self, message, payload):
        self.asked = message.request, [bytes(part) for part in encode_frame(message, payload)]
        self.ask_again()

    def ask_again(self):
        """As clients do when the connection is back."""
        if self.asked is not None and self.asked[0] not in self.replies:
            self.steps.append(("message", "m", self.machines["m"].lives, "x", self.asked[1]))

    # --- what must hold -------------------------------------------------------------------------------

    def runs(self):
        """Whether all of it runs everywhere, in memory and on disk; AssertionError: something in between."""
        found = set()
        for name, machine in self.machines.items():
            fragments, owners, deployments = machine.remembered()
            brain = machine.brain
            assert fragments == sorted(brain.fragments) == sorted(machine.engine), (name, fragments)
            assert owners == brain.catalog.owners == ({"q": "m"} if fragments else {}), (name, owners)
            assert deployments == ({"q": "running"} if name == "m" and fragments else {}), (name, deployments)
            found.add(len(fragments))
        assert found in ({0}, {1}), {name: list(each.brain.fragments) for name, each in self.machines.items()}
        return found == {1}
