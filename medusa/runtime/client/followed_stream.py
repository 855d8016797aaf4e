"""A stream of a client that goes on at another node when it has moved there."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TypeVar

from medusa.runtime.client.client_loop import ClientLoop, now_us
from medusa.runtime.client.contacts import Place
from medusa.wire.client_mind import ClientPublication, ClientSubscription
from medusa.wire.link.redirect import FOLLOWED, ask_again_us
from medusa.wire.messages.links import Refuse

__all__ = ["Followed"]

AWAIT_AGAIN_US = 500_000
"""So often at most one node is asked to say where a stream comes to be: an earlier release says at once where
it was."""

LEARN_AGAIN_US = 10_000_000
"""Who may have a stream next is asked so often, where anybody may."""

_T = TypeVar("_T")


class Followed(ABC):
    """A stream that is read or published, and the connection that it goes by now.

    Attributes:
        name: of the stream.
        kind: ``stream`` or ``source``: what the catalog calls it.
        epoch: as the catalog knew it when we came to its node.
        follows: somebody looks where it has moved to; else every refusal is the last word.
        participant: whose it is, where that isn't the one of the node that was asked for it.
        successors: nodes that may have it next, as its own node said last.
    """

    kind = ""

    def __init__(self, loop: ClientLoop, name: str, participant: str = "") -> None:
        self.name = name
        self.epoch = 0
        self.follows = False
        self.participant = participant
        self._loop = loop
        self._final: Refuse | None = None
        self._missing_since_us: int | None = None
        self._asked_us = 0
        self._awaited: dict[ClientLoop, tuple[int, int]] = {}
        """Whom we asked to say where it comes to be -> when, and the number of the question."""
        self._heard: Place | None = None
        self._learn_at_us: int | None = 0
        self.successors: tuple[Place, ...] = ()

    @abstractmethod
    def mind_of_stream(self) -> ClientPublication | ClientSubscription:
        """What stands for it in the mind of the client."""

    @abstractmethod
    def last_refusal(self) -> Refuse | None:
        """What the node last said against it."""

    @property
    def loop(self) -> ClientLoop:
        """The connection that it goes by."""
        return self._loop

    @property
    def over(self) -> bool:
        """It needs no following any more."""
        return False

    def follow_from(self, epoch: int) -> None:
        """Somebody looks from now on where it has moved to.

        Args:
            epoch: as the catalog knew it when we came to its node.
        """
        self.epoch, self.follows = epoch, True

    def final_refusal(self) -> Refuse | None:
        """What was refused for good; not what may be found elsewhere."""
        refusal = self.last_refusal()
        if refusal is None or refusal is self._final:
            return refusal
        return None if self.follows and refusal.code in FOLLOWED else refusal

    def sought(self) -> Refuse | None:
        """A refusal after which somebody must look where it is."""
        refusal = self.last_refusal()
        sought = refusal is not None and refusal.code in FOLLOWED and refusal is not self._final
        return refusal if sought else None

    def asks(self, at_us: int) -> bool:
        """Whether to ask other nodes now where it is, since its own is away; then that counts as done.

        Not while one of them is to say so as soon as it knows.
        """
        if self._heard is None and any(
            loop.is_answering(number) for loop, (_, number) in list(self._awaited.items())
        ):
            return False
        away_us = self._loop.down_us()
        before_loss = self._asked_us < at_us - away_us
        if not away_us or not (before_loss or at_us - self._asked_us >= ask_again_us(away_us)):
            return False
        self._asked_us = at_us
        return True

    def asks_at_once(self) -> None:
        """Another node has answered our call, maybe the one where it is now: where its own is away, the next
        look asks, however short ago the last did."""
        self._asked_us = 0

    def awaits(self, loop: ClientLoop, at_us: int) -> bool:
        """Whether to ask this node now to say where it comes to be."""
        before = self._awaited.get(loop)
        return before is None or (at_us - before[0] >= AWAIT_AGAIN_US and not loop.is_answering(before[1]))

    def awaited(self, loop: ClientLoop, at_us: int, number: int) -> None:
        """It was asked so."""
        self._awaited[loop] = at_us, number

    def heard(self, place: Place) -> None:
        """A node says where it is."""
        self._heard, self._asked_us = place, 0

    def take_heard(self) -> Place | None:
        """Where it is now, as a node said that was asked to; None: none has, or it is no news."""
        place, self._heard = self._heard, None
        return place if place is not None and place["epoch"] > self.epoch else None

    def to_learn(self, at_us: int) -> bool:
        """Whether to ask its node now who may have it next; then that counts as done."""
        if self._learn_at_us is None or at_us < self._learn_at_us:
            return False
        self._learn_at_us = None
        return True

    def learn(self, at_us: int, successors: Sequence[Place]) -> None:
        """These may have it next, as its node says; where nobody may, that isn't asked again."""
        self.successors = tuple(successors)
        self._learn_at_us = at_us + LEARN_AGAIN_US if successors else None

    def missing_us(self, at_us: int, *, known: bool) -> int:
        """For how long nobody has known it.

        Args:
            known: somebody does now.
        """
        if known:
            self._missing_since_us = None
        elif self._missing_since_us is None:
            self._missing_since_us = at_us
        return 0 if self._missing_since_us is None else at_us - self._missing_since_us

    def give_up(self, refusal: Refuse) -> None:
        """It is nowhere: this refusal was the last word."""
        self._final = refusal
        self._loop.ring()

    def move(self, loop: ClientLoop, epoch: int) -> None:
        """Go on by another connection; row by row, nothing is lost or comes twice.

        Raises:
            LinkError: one of the two was closed or has failed; nothing changed.
            LocalProtocolError: this client uses a stream of that name there already.
        """
        old = self._loop
        with old.lock, loop.lock:
            here, there, of = old.mind(), loop.mind(), self.mind_of_stream()
            if isinstance(of, ClientSubscription):
                there.take_subscription(now_us(), of)
                if old is not loop and here.subscriptions.get(self.name) is of:
                    del here.subscriptions[self.name]
            else:
                there.take_publication(now_us(), of)
                if old is not loop and here.publications.get(self.name) is of:
                    del here.publications[self.name]
            self._loop, self.epoch, self._final = loop, epoch, None
            self._awaited, self._learn_at_us, self.successors = {}, 0, ()
            loop.mind()  # Wakes it: there is something to say.
        old.ring()

    # --- for callers, while it may move -------------------------------------------------------------

    def under_lock(self, action: Callable[[], _T]) -> _T:
        """Do something with the mind of this stream."""
        while True:
            loop = self._loop
            with loop.lock:
                if loop is self._loop:
                    loop.mind()
                    return action()

    def wait(self, done: Callable[[], bool], what: str, timeout_us: int | None) -> None:
        """As ``ClientLoop.wait``, by whichever connection it goes."""
        end_us = None if timeout_us is None else now_us() + timeout_us
        while True:
            loop = self._loop
            left_us = None if end_us is None else max(end_us - now_us(), 0)
            loop.wait(lambda loop=loop: loop is not self._loop or done(), what, left_us)  # type: ignore[misc]
            if loop is self._loop:
                return

    async def wait_async(self, done: Callable[[], bool], what: str, timeout_us: int | None) -> None:
        """As ``ClientLoop.wait_async``, by whichever connection it goes."""
        end_us = None if timeout_us is None else now_us() + timeout_us
        while True:
            loop = self._loop
            left_us = None if end_us is None else max(end_us - now_us(), 0)
            await loop.wait_async(
                lambda loop=loop: loop is not self._loop or done(),  # type: ignore[misc]
                what,
                left_us,
            )
            if loop is self._loop:
                return
