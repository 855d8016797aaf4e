"""Mistakes as people make them, each planted in a subclass. Some seed must notice every one."""

from __future__ import annotations

from medusa.sim.actors import SubscriberActor
from medusa.sim.chain import Parts
from medusa.sim.relay import Relay
from medusa.sim.saved import save_sender
from medusa.wire.receiver import Lost, Promise, Receiver, Rows
from medusa.wire.sender import Sender


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
            sorted(self._waiting, key=lambda delivery: not isinstance(delivery, Promise))
        )
        super()._work(now_us)


class NoBackpressure(Relay):
    """Input is consumed although no more output can be kept."""

    def _work(self, now_us):
        settings = self.sender.settings
        self.sender.settings = type(settings)(
            window_bytes=settings.window_bytes, frame_bytes_max=settings.frame_bytes_max
        )
        super()._work(now_us)
        self.sender.settings = settings


class TrimAtReceived(Sender):
    """What was received is taken for durable."""

    def _ack(self, now_us, view, message):
        super()._ack(now_us, view, message)
        view.durable = view.acked


class ResendFromWrongRow(Sender):
    """After a reconnection it goes on behind the row that is wanted."""

    def _attach(self, now_us, peer, message):
        find = self.log.find
        if peer in self.receivers and self.receivers[peer].epoch:
            self.log.find = lambda seq: min(find(seq) + 1, self.log.end)
        super()._attach(now_us, peer, message)
        self.log.find = find


class CreditKeptFromBefore(Sender):
    """The bytes sent in the epoch before still count against the new credit."""

    def _attach(self, now_us, peer, message):
        before = self.receivers[peer].sent_bytes if peer in self.receivers else 0
        super()._attach(now_us, peer, message)
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
            Rows(message=rows.message, payload=rows.payload, skip=0, seq=rows.seq, cost=rows.cost)
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
        return [each for each in super()._attached(now_us, message) if not isinstance(each, Lost)]


def relay(**types):
    return Parts(relay=type("Planted", (Relay,), types))


class GapHiddenReader(SubscriberActor):
    def start(self, now_us):
        super().start(now_us)
        self.subscription.receiver.__class__ = GapHidden


PLANTED = {
    "ack before persist": ("crash", Parts(relay=AckBeforePersist)),
    "position of what was received": ("crash", Parts(relay=ReceivedPosition)),
    "output not in the checkpoint": ("crash", Parts(relay=OutputNotSaved)),
    "old checkpoint loaded": ("crash", Parts(relay=OldCheckpoint)),
    "promise before its rows": ("chaos", Parts(relay=BoundaryFirst)),
    "no backpressure": ("cut", Parts(relay=NoBackpressure)),
    "trim at received": ("crash", relay(sender_type=TrimAtReceived)),
    "resend from the wrong row": ("cut", relay(sender_type=ResendFromWrongRow)),
    "credit lost on reconnect": ("chaos", relay(sender_type=CreditKeptFromBefore)),
    "credit ignored": ("cut", relay(sender_type=CreditIgnored)),
    "epoch forgotten": ("chaos", relay(receiver_type=ForgetTheEpoch)),
    "duplicate accepted": ("crash", relay(receiver_type=DuplicateAccepted)),
    "missing frame accepted": ("chaos", relay(receiver_type=GapInFramesAccepted)),
    "gap not reported": ("gap", Parts(reader=GapHiddenReader)),
}
"""Name: (the scenario that must notice it, the classes with the mistake)."""
