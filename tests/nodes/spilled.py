"""An output that spills, a real host on a disk that may fail, a receiver, and a network between them."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from types import SimpleNamespace

from medusa.nodes.fragment.checkpoint_record import LOG, RECORD, FragmentRecord, read_record
from medusa.nodes.fragment.outputs import FragmentOutput, OutgoingElement
from medusa.nodes.reports import Fetched, Persisted
from medusa.runtime.engine_host.group_names import group_name, group_token
from medusa.runtime.engine_host.host import EngineHost
from medusa.runtime.machine.clock import SystemClock
from medusa.sim.world.disk import Disk
from medusa.wire import limits
from medusa.wire.codec import decode_frame, encode_frame
from medusa.wire.link.automaton import LinkEvent
from medusa.wire.link.receiver import ReceivedRows, Receiver
from medusa.wire.outbox import Fetch, Outbox, Persist, ReportLine, Send, WriteSegment
from tests.wire.pair import SCHEMA, SMALL, sends

BOUND = 20_000
SPILLS = replace(SMALL, retained_bytes_max=BOUND, keep_bytes=BOUND, at_limit="spill")
NAME = "f"
TRAIN = 900
ROW = "abcdefghijklmnopqrstuvwxyz0123456789_"
SHAPE = SimpleNamespace(schema=SCHEMA, timed=True, window=None)


class Later:
    """A thread that works when the test says so."""

    idle = True

    def __init__(self):
        self.jobs = deque()

    def give(self, job):
        self.jobs.append(job)

    def cpu_us(self):
        """Nobody knows."""


class Story:
    """One output with a real host on a disk that may fail, a receiver, and a network between them."""

    def __init__(self, settings=SPILLS):
        self.settings = settings
        self.now_us = 0
        self.disk = Disk("a")
        self.token = 0
        self.lives = 0
        self.boundary_us = 0
        self.reports = []
        self.to_receiver, self.to_sender, self.got = [], [], []
        self.held = deque()
        self.start()
        self.receiver = self.new_receiver(0)
        self.receiver.peer_event(0, LinkEvent.PEER_UP)
        self.settle()

    # --- the sending node

    def start(self):
        """From what the disk has."""
        self.outbox, self.workers = Outbox(), {}
        self.host = EngineHost(self.disk, SystemClock(), wake=lambda: None, worker=self.worker)
        record, logs, needed = None, {}, {}
        names = [name for name in self.disk.names() if group_token(NAME, name) is not None]
        for name in names[-1:]:
            files = self.disk.read(name)
            checkpoint = read_record(files[RECORD], where=name)
            (record,) = checkpoint.outputs
            spilled = checkpoint.segments()
            for token in checkpoint.tokens():
                if token not in spilled:
                    logs[token] = self.disk.read(group_name(NAME, token))[LOG]
            needed = {checkpoint.token: checkpoint.tokens()}
        self.host.resume(NAME, None, needed)
        self.output = FragmentOutput(
            "out",
            "s",
            SHAPE,
            readers=["target"],
            outbox=self.outbox,
            settings=self.settings,
            fragment=NAME,
            next_token=self.next_token,
            record=record,
            logs=logs,
        )
        self.output.sender.gathers_by(b"".join, over_boundaries=True)  # Its rows are text.
        self.writing = None
        self.boundary_us = max(self.output.boundary_us, 0)

    def worker(self, name):
        return self.workers.setdefault(name, Later())

    def next_token(self):
        self.token += 1
        return self.token

    @property
    def log(self):
        return self.output.sender.log

    def train(self, rows):
        at = self.log.next_seq
        text = "".join(ROW[seq % len(ROW)] for seq in range(at, at + rows))
        self.output._send(self.now_us, [OutgoingElement(payload=text.encode(), rows=rows)])
        self.perform()

    def checkpoint(self):
        if self.writing is not None:
            return
        token = self.next_token()
        compact = len(self.output.tokens()) >= 2
        record, payloads, places = self.output.record(token, 0, compact=compact)
        whole = FragmentRecord(
            token=token, fragment=NAME, mixed=False, inputs=(), outputs=(record,), fed_us={}
        )
        files = {RECORD: whole.to_bytes(), LOG: tuple(payloads)}
        keep = (*whole.tokens(), *self.output.spilling.writing)
        self.writing = token, places
        self.host.persist(Persist(token=token, fragment=NAME, files=files, keep=keep))

    def perform(self):
        for effect in self.outbox.take():
            match effect:
                case Send():
                    self.to_receiver.append((effect.message, effect.payload))
                case WriteSegment():
                    self.host.spill(effect)
                case Fetch():
                    self.host.fetch(effect)
                case ReportLine():
                    self.reports.append(effect)

    def work(self, most=1000):
        """The disk does so much of what it was given."""
        for _ in range(most):
            ready = [worker for worker in self.workers.values() if worker.jobs]
            if not ready:
                return
            ready[0].jobs.popleft()()
            for done in self.host.finished():
                match done:
                    case Fetched():
                        assert self.output.spilling.fetched(self.now_us, done.token, done.payloads, done.why)
                    case Persisted() if self.writing is not None and done.token == self.writing[0]:
                        if done.ok:
                            self.output.stored(self.writing[1])
                        self.writing = None
                    case Persisted():
                        assert self.output.spilling.written(self.now_us, done.token, done.ok, done.why)
                self.perform()

    def restart(self):
        """The node dies, and what was on its way; another life begins with what is on disk."""
        self.to_receiver.clear()
        self.to_sender.clear()
        self.disk.crash()
        self.start()
        self.receiver.peer_event(self.now_us, LinkEvent.PEER_RESTARTED)

    # --- the receiving one

    def new_receiver(self, next_seq):
        self.lives += 1
        self.target_box = Outbox()
        self.durable = list(self.got)
        return Receiver(
            "s",
            "a",
            incarnation=self.lives,
            outbox=self.target_box,
            settings=self.settings,
            schema=SCHEMA,
            timed=True,
            next_seq=next_seq,
            plain=False,
        )

    def crash_receiver(self):
        self.got = [*self.durable]
        self.held.clear()
        self.to_receiver.clear()
        self.to_sender.clear()
        boundary_us = self.durable_us if self.durable else None
        self.receiver = self.new_receiver(self.receiver.durable_seq)
        if boundary_us is not None:
            self.receiver.boundary_us = boundary_us
        self.output.sender.peer(self.now_us, "target", LinkEvent.PEER_RESTARTED)
        self.receiver.peer_event(self.now_us, LinkEvent.PEER_UP)

    def consume(self, count):
        for _ in range(min(count, len(self.held))):
            self.receiver.consumed(self.now_us, self.held.popleft().cost)

    def say_durable(self):
        self.durable, self.durable_us = list(self.got), self.receiver.boundary_us
        self.receiver.durable(self.now_us, self.receiver.next_seq)

    def settle(self):
        """What is under way arrives, until nobody says anything more at this moment."""
        while True:
            self.perform()
            self.to_sender += sends(self.target_box)
            if not (self.to_sender or self.to_receiver):
                return
            for frame in self.taken(self.to_sender):
                self.output.sender.receive(self.now_us, "target", frame[0])
            for message, payload in self.taken(self.to_receiver):
                made = self.receiver.receive(self.now_us, message, payload)
                self.got += made
                self.held += made

    @staticmethod
    def taken(frames):
        taken = [decode_frame(encode_frame(*frame)) for frame in frames]
        frames.clear()
        return taken

    def wait(self, for_us):
        until_us = self.now_us + for_us
        while self.now_us < until_us:
            self.now_us += 50_000
            self.output.tick(self.now_us)
            self.receiver.tick(self.now_us)
            self.settle()

    @property
    def text(self):
        return "".join(bytes(e.payload).decode()[e.skip :] for e in self.got if isinstance(e, ReceivedRows))

    def expected(self, rows=None):
        end = self.log.next_seq if rows is None else rows
        return "".join(ROW[seq % len(ROW)] for seq in range(end))

    def read_all(self):
        """The receiver takes all there is."""
        for _ in range(400):
            self.consume(1000)
            self.work()
            self.wait(150_000)
            if len(self.text) >= self.log.next_seq:
                return

    def check(self):
        log = self.log
        assert log.nbytes == sum(entry.cost for entry in log.entries())
        assert log.spilled_bytes == sum(entry.away for entry in log.entries())
        # Output of one train more than fits, and a segment that was read back, with one train more.
        assert log.memory_bytes <= BOUND + BOUND // 4 + 2 * (TRAIN + limits.ENTRY_BYTES)
        whole = self.output.spilling.spilled_to
        stored = self.output._stored
        assert all(index in stored for index in range(log.base, whole) if log[index].time_us is None)


def stalled(trains=60, **settings):
    """A receiver that took its window and no more, while the disk takes what it is given."""
    story = Story(replace(SPILLS, **settings))
    for _ in range(trains):
        story.train(TRAIN)
        story.settle()
        story.work()
        story.check()
        assert not story.output.full(0)
    return story


def files(story):
    return [name for name in story.disk.names() if "-log-" in name]
