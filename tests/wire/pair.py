"""A sender and a receiver with a network that does what the test says: both ends in every test."""

from __future__ import annotations

from medusa.errors import RemoteProtocolError
from medusa.query.boxes import Field
from medusa.wire.codec import decode_frame, encode_frame
from medusa.wire.link.automaton import LinkEvent, LinkSettings
from medusa.wire.link.receiver import Receiver
from medusa.wire.link.sender import Sender
from medusa.wire.outbox import Outbox, Send

SCHEMA = (Field("a", "int64"),)
SMALL = LinkSettings(window_bytes=2000, frame_bytes_max=1000, retained_bytes_max=10_000, keep_bytes=3000)


def sends(outbox):
    """The messages of the outbox, with their payloads; reports are left out."""
    return [(effect.message, effect.payload) for effect in outbox.take() if isinstance(effect, Send)]


class Pair:
    """``source`` sends stream ``s`` to ``target``. Time stands still unless a test moves ``now_us``.

    Attributes:
        got: what the receiver delivered.
        to_receiver, to_sender: frames under way; a test may drop, repeat or reorder them.
        consume: whether the owner consumes what comes.
        guesses: what the tentative lane delivered.
        take_guesses: whether the owner takes those.
    """

    def __init__(self, settings=SMALL, *, plain=False, next_seq=0, expect=True, tentative=False):
        self.now_us = 0
        self.consume = True
        self.settings = settings
        self.source_box, self.target_box = Outbox(), Outbox()
        self.sender = Sender("s", SCHEMA, timed=True, outbox=self.source_box, settings=settings)
        if expect and not plain:
            self.sender.expect("target")
        self.receiver = self.new_receiver(1, next_seq=next_seq, plain=plain, tentative=tentative)
        self.got, self.guesses = [], []
        self.take_guesses = True
        self.to_receiver, self.to_sender = [], []

    def new_receiver(self, incarnation, *, next_seq=0, plain=False, tentative=False):
        return Receiver(
            "s",
            "source",
            incarnation=incarnation,
            outbox=self.target_box,
            settings=self.settings,
            schema=SCHEMA,
            timed=True,
            next_seq=next_seq,
            plain=plain,
            tentative=tentative,
        )

    def up(self):
        self.receiver.peer_event(self.now_us, LinkEvent.PEER_UP)
        self.settle()
        return self

    def train(self, text, rows=None):
        self.sender.train(self.now_us, text.encode(), rows or len(text))

    def collect(self):
        """Take what both ends want to send."""
        self.to_receiver += sends(self.source_box)
        self.to_sender += sends(self.target_box)

    def settle(self):
        """Let frames pass both ways until nobody has anything more to say at this moment."""
        self.collect()
        while self.to_receiver or self.to_sender:
            for message, _ in self._take(self.to_sender):
                self.sender.receive(self.now_us, "target", message)
            for message, payload in self._take(self.to_receiver):
                self.bring(message, payload)
            self.collect()

    def _take(self, frames):
        taken = [decode_frame(encode_frame(*frame)) for frame in frames]
        frames.clear()
        return taken

    def bring(self, message, payload=None):
        """One frame to the receiver."""
        try:
            deliveries = self.receiver.receive(self.now_us, message, payload)
        except RemoteProtocolError as error:
            self.receiver.refuse(error)
            raise
        self.got += deliveries
        self.take_tentative()
        if self.consume:
            for delivery in deliveries:
                self.receiver.consumed(self.now_us, delivery.cost)

    def take_tentative(self):
        """What the tentative lane brought."""
        came = self.receiver.tentative.take()
        self.guesses += came
        for guess in came if self.take_guesses else ():
            self.receiver.tentative.taken(self.now_us, guess.cost)

    def wait(self, delay_us):
        """Time passes; both do what is due on the way."""
        until_us = self.now_us + delay_us
        for _ in range(10_000):
            times = [self.sender.wake_at_us(), self.receiver.wake_at_us()]
            due_us = min((time for time in times if time is not None), default=until_us)
            if due_us >= until_us:
                break
            self.now_us = max(due_us, self.now_us)
            self.sender.tick(self.now_us)
            self.receiver.tick(self.now_us)
            self.settle()
        self.now_us = until_us

    @property
    def text(self):
        """The rows delivered, one character each."""
        return "".join(
            bytes(each.payload).decode()[each.skip :] for each in self.got if hasattr(each, "payload")
        )
