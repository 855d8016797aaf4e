"""Mistakes as people make them, each planted in a subclass. Some seed must notice every one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec
import pytest

from medusa.nodes.catalog.catalog import REMOVING
from medusa.nodes.deploy.coordinator import DeploymentCoordinator
from medusa.nodes.fragment import host
from medusa.nodes.fragment.checkpoint_record import FragmentRecord
from medusa.nodes.fragment.host import FragmentHost
from medusa.nodes.fragment.input_log import InputLog
from medusa.nodes.fragment.input_queue import InputQueue
from medusa.nodes.fragment.inputs import FragmentInput
from medusa.nodes.fragment.outputs import FragmentOutput
from medusa.nodes.fragment.spilling import OutputSpilling
from medusa.runtime.repair import folder_contents
from medusa.sim.actors import relay as relay_module
from medusa.sim.actors.chain_ends import SubscriberActor
from medusa.sim.actors.relay import Relay
from medusa.sim.actors.saved_output import save_sender
from medusa.sim.trials import queries
from medusa.sim.trials.chain import ChainClasses
from medusa.wire.link.receiver import LostRows, ReceivedPromise, ReceivedRows, Receiver
from medusa.wire.link.sender import Sender


class AckBeforePersist(Relay):
    """Durable is said when the checkpoint begins, not when it is on disk."""

    def _checkpoint(self):
        super()._checkpoint()
        if self.receiver is not None:
            self.receiver.durable(0, self.taken_seq)


class ReceivedPosition(Relay):
    """The checkpoint claims what was received, not what was consumed."""

    def _checkpoint(self):
        taken = self.taken_seq
        if self.receiver is not None:
            self.taken_seq = self.receiver.next_seq
        super()._checkpoint()
        self.taken_seq = taken


class OutputNotSaved(Relay):
    """The checkpoint leaves out the output that is kept for others."""

    def _checkpoint(self):
        super()._checkpoint()
        effect = self.outbox._effects[-1]
        sender = Sender("x", (), timed=True, outbox=self.outbox, first_seq=self.sender.log.next_seq)
        effect.files["output"] = save_sender(sender)


class OldCheckpoint(Relay):
    """The oldest checkpoint is loaded, not the newest."""

    def _load(self, store):
        names = store.names()
        store.names = lambda: names[:1]
        try:
            return super()._load(store)
        finally:
            del store.names


class BoundaryFirst(Relay):
    """Promises overtake the rows that wait."""

    def _work(self, now_us):
        self._waiting = type(self._waiting)(
            sorted(self._waiting, key=lambda delivery: not isinstance(delivery, ReceivedPromise))
        )
        super()._work(now_us)


class NoBackpressure(Relay):
    """Input is consumed although no more output can be kept."""

    def _work(self, now_us):
        self.sender.retention.full = lambda nbytes: False
        super()._work(now_us)


class TrimAtReceived(Sender):
    """What was received is taken for durable."""

    def _ack(self, now_us, view, message):
        super()._ack(now_us, view, message)
        view.durable = view.acked


class ResendFromWrongRow(Sender):
    """After a reconnection it goes on behind the row that is wanted."""

    def _attach(self, now_us, peer, message, key):
        find = self.log.find
        if peer in self.receivers and self.receivers[peer].epoch:
            self.log.find = lambda seq: min(find(seq) + 1, self.log.end)
        super()._attach(now_us, peer, message, key)
        self.log.find = find


class CreditKeptFromBefore(Sender):
    """The bytes sent in the epoch before still count against the new credit."""

    def _attach(self, now_us, peer, message, key):
        before = self.receivers[peer].sent_bytes if peer in self.receivers else 0
        super()._attach(now_us, peer, message, key)
        view = self.receivers[peer]
        view.sent_bytes = min(view.sent_bytes + before, view.granted)


class CreditIgnored(Sender):
    """It sends whatever it has."""

    def _pump(self, now_us, view):
        view.granted = max(view.granted, view.sent_bytes + 5000)
        super()._pump(now_us, view)


class NeverAsks(Sender):
    """No ``Progress``: a lost last frame is not noticed."""

    def _progress(self, now_us, view):
        view.asked_at_us = now_us


class ForgetTheEpoch(Receiver):
    """Frames of an earlier attachment are taken for frames of this one."""

    def receive(self, now_us, message, payload=None):
        if hasattr(message, "frame"):
            values = {name: getattr(message, name) for name in message.__struct_fields__}
            message = type(message)(**values | {"epoch": self._epoch, "frame": self._frames})
        return super().receive(now_us, message, payload)


class DuplicateAccepted(Receiver):
    """Rows that came before, resent in a train that straddles, are taken again."""

    def _rows(self, now_us, message, payload):
        return [
            ReceivedRows(message=rows.message, payload=rows.payload, skip=0, seq=rows.seq, cost=rows.cost)
            for rows in super()._rows(now_us, message, payload)
        ]


class GapInFramesAccepted(Receiver):
    """A missing frame is not noticed by its number."""

    def receive(self, now_us, message, payload=None):
        if hasattr(message, "frame"):
            self._frames = max(self._frames, message.frame)
        return super().receive(now_us, message, payload)


class GapHidden(Receiver):
    """Lost rows are not told to the owner."""

    def _attached(self, now_us, message):
        return [each for each in super()._attached(now_us, message) if not isinstance(each, LostRows)]


def relay(**types):
    return ChainClasses(relay=type("Planted", (Relay,), types))


class TrimAtFirst(Sender):
    """Rows are trimmed as soon as one of the receivers holds them."""

    def _trim(self, now_us):
        kept = {view.peer: view.durable for view in self.receivers.values()}
        for view in self.receivers.values():
            view.durable = max(kept.values())
        super()._trim(now_us)
        for view in self.receivers.values():
            view.durable = kept[view.peer]


class FailedWriteBelieved(Relay):
    """A write that failed counts as done."""

    def persisted(self, now_us, token, ok):
        super().persisted(now_us, token, True)


class CreditForHeld(Receiver):
    """Credit is granted for what lies here unread."""

    def _granted(self):
        return self._received_bytes + self.settings.window_bytes


class PromiseAgain(Receiver):
    """A promise that says nothing new is handed on."""

    def _promise(self, time_us, cost):
        return super()._promise(time_us, cost) or [ReceivedPromise(time_us=time_us, cost=cost)]


class AsksOnce(Receiver):
    """An ``Attach`` that is lost is not said again."""

    def tick(self, now_us):
        self._asked_at_us = now_us
        super().tick(now_us)


class FirstLifeForEver(Relay):
    """Epochs begin anew with each life, as if nothing of the life before were under way."""

    def __init__(self, name, settings, store, life):
        super().__init__(name, settings, store, 1)


class GapHiddenReader(SubscriberActor):
    def start(self, now_us):
        super().start(now_us)
        self.subscription.receiver.__class__ = GapHidden


class ShedInSilence(Sender):
    """Who wanted next what was shed gets what comes after it, and is told nothing."""

    def _overtaken(self, view):
        view.cursor = self.log.base


# --- in whole nodes -------------------------------------------------------------------------------


def torn_checkpoint(monkeypatch):
    """The newest checkpoint is loaded whether it is whole or not."""

    def newest(store):
        return store.read(store.names()[-1]) if store.names() else {}

    monkeypatch.setattr(relay_module, "newest", newest)


def ack_before_sync(monkeypatch):
    """Durable is said when the checkpoint is begun."""
    honest = FragmentHost._checkpoint

    def hasty(self, now_us):
        honest(self, now_us)
        for input in self.inputs.values():
            input.receiver.durable(now_us, input.fed_seq)

    monkeypatch.setattr(FragmentHost, "_checkpoint", hasty)


def forget_output(monkeypatch):
    """A checkpoint leaves out the output that is not yet durable downstream."""
    honest = FragmentOutput.record

    def careless(self, token, offset, *, compact):
        record, _, _ = honest(self, token, offset, compact=compact)
        log = self.sender.log
        empty = msgspec.structs.replace(
            record, entries=(), first_seq=log.next_seq, first_boundary_us=log.boundary_us
        )
        return empty, [], {}

    monkeypatch.setattr(FragmentOutput, "record", careless)


def position_of_arrival(monkeypatch):
    """A checkpoint notes what arrived instead of what was fed."""
    honest = FragmentInput.record

    def early(self):
        self.fed_seq = self.receiver.next_seq
        return honest(self)

    monkeypatch.setattr(FragmentInput, "record", early)
    monkeypatch.setattr(host, "RUNNING_MAX", 1)  # no mistake, but rows wait where they else go on


def decisions_leave_early(monkeypatch):
    """What depends on the order of arrival leaves before that order is on disk."""
    honest = FragmentOutput.take

    def hasty(self, now_us, element, *, hold, **more):
        honest(self, now_us, element, hold=False, **more)

    monkeypatch.setattr(FragmentOutput, "take", hasty)


def released_before_logged(monkeypatch):
    """What was given to the disk counts as on it."""
    honest = InputLog.write

    def hasty(self, now_us):
        honest(self, now_us)
        self.durable = max(self.durable, self.at)

    monkeypatch.setattr(InputLog, "write", hasty)


def fed_as_it_comes(monkeypatch):
    """After a restart rows are fed in the order in which they come now."""
    honest = InputQueue.__init__

    def careless(self, fragment, again, inputs, entries, decided, *rest):
        honest(self, fragment, (), inputs, entries, decided, *rest)
        decided.at += len(again)
        decided.durable = decided.at

    monkeypatch.setattr(InputQueue, "__init__", careless)


def log_of_an_older_checkpoint(monkeypatch):
    """What is fed again begins before the checkpoint."""
    honest = folder_contents.read_record

    def older(data, *, where):
        record = honest(data, where=where)
        return msgspec.structs.replace(record, decided=max(record.decided - 3, 0))

    monkeypatch.setattr(folder_contents, "read_record", older)


def gone_before_durable(monkeypatch):
    """Rows leave memory although their segment couldn't be written."""
    honest = OutputSpilling.written

    def hasty(self, now_us, token, ok, why):
        return honest(self, now_us, token, True, "")

    monkeypatch.setattr(OutputSpilling, "written", hasty)


def segments_not_kept(monkeypatch):
    """A checkpoint doesn't say which segments it needs, so they are deleted."""
    honest = FragmentRecord.tokens

    def careless(self):
        return tuple(token for token in honest(self) if token not in self.segments())

    monkeypatch.setattr(FragmentRecord, "tokens", careless)


def half_written_not_kept(monkeypatch):
    """A checkpoint doesn't say that a segment is just being written, so it is deleted when it is there."""
    monkeypatch.setattr(OutputSpilling, "writing", ())


def undone_in_silence(monkeypatch):
    """Who asks again for a query that is being undone hears nothing."""
    honest = DeploymentCoordinator.deploy

    def silent(self, now_us, client, request, plan):
        known = self._catalog.deployments.get(plan.query)
        if known is None or (known.client, known.request, known.state) != (client, request, REMOVING):
            honest(self, now_us, client, request, plan)

    monkeypatch.setattr(DeploymentCoordinator, "deploy", silent)
    monkeypatch.setattr(queries, "PATIENCE_US", 1 << 60)  # nor does its user ask once more


@dataclass(frozen=True)
class Plant:
    """A mistake, and a seed that notices it."""

    scenario: str
    seed: int
    parts: ChainClasses | None = None
    patch: Callable[[pytest.MonkeyPatch], None] | None = None
    shows: str = "SimulationError: "
    """How the violation begins: a check fails, not the mistake itself."""

    def apply(self, monkeypatch):
        if self.patch is not None:
            self.patch(monkeypatch)


PROMISE_AGAIN = relay(receiver_type=PromiseAgain)
PLANTED = {
    "ack before persist": Plant("crash", 0, ChainClasses(relay=AckBeforePersist)),
    "position of what was received": Plant("crash", 11, ChainClasses(relay=ReceivedPosition)),
    "output not in the checkpoint": Plant("crash", 6, ChainClasses(relay=OutputNotSaved)),
    "old checkpoint loaded": Plant("crash", 1, ChainClasses(relay=OldCheckpoint)),
    "promise before its rows": Plant("chaos", 0, ChainClasses(relay=BoundaryFirst)),
    "no backpressure": Plant("cut", 0, ChainClasses(relay=NoBackpressure)),
    "trim at received": Plant("crash", 0, relay(sender_type=TrimAtReceived)),
    "trim by one replica's ack": Plant("crash", 4, relay(sender_type=TrimAtFirst)),
    "resend from the wrong row": Plant("cut", 0, relay(sender_type=ResendFromWrongRow)),
    "credit lost on reconnect": Plant("chaos", 4, relay(sender_type=CreditKeptFromBefore)),
    "credit ignored": Plant("cut", 0, relay(sender_type=CreditIgnored)),
    "credit for what is unread": Plant("cut", 0, relay(receiver_type=CreditForHeld)),
    "epoch forgotten": Plant("chaos", 0, relay(receiver_type=ForgetTheEpoch)),
    "first life for ever": Plant("crash", 2, ChainClasses(relay=FirstLifeForEver)),
    "duplicate accepted": Plant("crash", 0, relay(receiver_type=DuplicateAccepted)),
    "missing frame accepted": Plant("chaos", 2, relay(receiver_type=GapInFramesAccepted)),
    "progress never asked": Plant("chaos", 34, relay(sender_type=NeverAsks)),
    "attach said once": Plant("chaos", 1, relay(receiver_type=AsksOnce)),
    "promise handed on again": Plant(
        "crash", 6, relay(receiver_type=PromiseAgain), shows="LocalProtocolError: "
    ),
    "failed write believed": Plant("crash", 3, ChainClasses(relay=FailedWriteBelieved)),
    "gap not reported": Plant("gap", 0, ChainClasses(reader=GapHiddenReader)),
    "shed in silence": Plant("shed", 0, relay(sender_type=ShedInSilence)),
    "shed rows not reported": Plant("shed", 2, ChainClasses(reader=GapHiddenReader)),
    "torn checkpoint loaded": Plant("crash", 11, patch=torn_checkpoint, shows="StateError: "),
    "a node acks before sync": Plant("nodes", 41, patch=ack_before_sync),
    "a node forgets its output": Plant("nodes", 15, patch=forget_output),
    "a node notes what arrived": Plant("nodes", 38, patch=position_of_arrival),
    "decisions leave early": Plant("union", 262, patch=decisions_leave_early),
    "released before it is logged": Plant("union", 42, patch=released_before_logged),
    "fed as it comes after a restart": Plant("union", 7, patch=fed_as_it_comes),
    "log of an older checkpoint": Plant("union", 7, patch=log_of_an_older_checkpoint),
    "undone in silence": Plant("nodes", 27, patch=undone_in_silence),
    "gone before it is durable": Plant("spill", 16, patch=gone_before_durable),
    "segments that are needed are deleted": Plant("spill", 1, patch=segments_not_kept),
    "a segment being written is deleted": Plant("spill", 1, patch=half_written_not_kept),
}
"""Name: the mistake, with the scenario and the seed that must notice it."""
