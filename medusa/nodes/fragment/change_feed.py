"""What a fragment is fed while it is copied, in the order in which it is fed."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from medusa.elements import Boundary, Shed, Silent, Train
from medusa.nodes.fragment.input_log_records import JOINED, LOST, PROMISE, ROWS, SHED
from medusa.nodes.fragment.inputs import FragmentInput, Work
from medusa.nodes.upstream_backup.marks import Mark
from medusa.ports import Buffer

__all__ = ["PASSED", "ChangeFeed", "CheckpointMark", "FedElement", "StandbyChangeFeed"]

PASSED = 4
"""Beside the kinds of decisions: only the position of an input moves."""

ITEM_BYTES = 256
"""What an element costs beside its rows."""

BACKLOG_MAX = 64 << 20
"""While the checkpoint is on its way so much may wait behind it; then the fragment is fed nothing more.
Too small: a large state slows the fragment down while it is copied; too large: memory."""

BEHIND_MAX = 256 << 20
"""A secondary that is further behind is given up and seeded anew: its owner never waits for it. Too small: a
pause of the secondary costs a new seed; too large: memory of the owner."""

NEAR_BYTES = 1 << 20
NEAR_ITEMS = 16
"""The owner stops when no more than this is on its way. Too large: so much longer nothing comes out; too
small: the stream is slow before."""


@dataclass(slots=True)
class FedElement:
    """One element that was fed, and where its input stands after it; ``payload`` as of ``Work``."""

    kind: int
    number: int
    input: FragmentInput
    element: Train | Boundary | Shed | None
    next_seq: int
    boundary_us: int
    note: bytes
    cost: int
    payload: Buffer | None


@dataclass(frozen=True, slots=True)
class CheckpointMark:
    """The owner took a checkpoint here: what was fed before it is in it."""

    token: int


class ChangeFeed:
    """Keeps what is fed after a checkpoint until it was sent on.

    Attributes:
        token: of the checkpoint; 0: it is not taken yet.
        decided: it holds the decisions below this number.
        durable: it is on disk.
        broken: why this can't go on; empty: it can.
        queue: what waits to be sent.
        nbytes: of it, and of what was sent and isn't done; who sends it counts it down, by ``done``.
        items: how many elements that is.
        bound, items_bound: with as much the fragment is fed nothing; None: any number.
        closed: no other publisher is let in.
        held: the fragment is fed nothing.
    """

    def __init__(self) -> None:
        self.token = self.decided = 0
        self.durable = self.closed = self.held = False
        self.broken = ""
        self.queue: deque[FedElement | CheckpointMark] = deque()
        self.nbytes = self.items = 0
        self.bound = BACKLOG_MAX
        self.items_bound: int | None = None
        self._halves = 0

    @property
    def begun(self) -> bool:
        """The checkpoint is taken, and no other may be until this is over."""
        return self.token > 0

    @property
    def holds_checkpoints(self) -> bool:
        """No checkpoint may be taken: the one that goes ahead would be deleted, or be too old."""
        return self.begun

    @property
    def full(self) -> bool:
        many = self.items_bound is not None and self.items >= self.items_bound
        return self.held or many or self.nbytes >= self.bound

    @property
    def near(self) -> bool:
        """Little is left of it."""
        return self.nbytes <= NEAR_BYTES and self.items <= NEAR_ITEMS

    def opened(self) -> None:
        """The target feeds: from here on the fragment is fed more slowly than that, so that it comes near."""
        self.bound = self.nbytes + NEAR_BYTES
        self.items_bound = self.items + NEAR_ITEMS

    def done(self, cost: int) -> None:
        """The target has an element, and has fed all but the last few. Half as much may come after it: a
        fragment that is fed nothing until all is done would rest the longer, the larger its state is."""
        self.nbytes -= cost
        self.items -= 1
        if self.items_bound is not None:
            self._halves += 1
            self.bound = max(self.bound - cost // 2, NEAR_BYTES)
            self.items_bound = max(self.items_bound - self._halves % 2, NEAR_ITEMS)

    def give_up(self, why: str) -> None:
        """This can't go on."""
        self.broken = why

    def close(self) -> None:
        """Let no other publisher in from now on."""
        self.closed = True

    def hold(self) -> None:
        """Have the fragment fed nothing from now on."""
        self.held = True

    def begins(self, token: int, decided: int) -> None:
        """A checkpoint is being taken: if it is the first, what is fed from now on comes after it.

        Args:
            decided: the number of the next decision.
        """
        if not self.begun:
            self.token, self.decided = token, decided

    def persisted(self, token: int, ok: bool, why: str) -> None:
        """A checkpoint is on disk, or isn't."""
        if token == self.token:
            self.durable = ok
            self.broken = self.broken or ("" if ok else why or "the checkpoint could not be written")

    def fed(self, work: Work) -> None:
        """The engine is told to feed this, or a position moves."""
        if not self.begun or isinstance(work.element, Silent):
            return
        match work.element:
            case Train():
                kind = ROWS
            case Boundary():
                kind = PROMISE
            case Shed():
                kind = SHED
            case None:
                kind = LOST if work.number >= 0 else PASSED
        at = work.next_seq, work.boundary_us, work.note
        self._put(kind, work.number, work.input, work.element, *at, payload=work.payload)

    def joined(self, input: FragmentInput, number: int) -> None:
        """A publisher came, which is a decision of its own; or (-1) one that has a name, or another client
        has that, which the note says."""
        if self.begun:
            note = input.by.encode() if input.named else b""
            self._put(JOINED, number, input, None, input.fed_seq, input.fed_us, note)

    def _put(
        self,
        kind: int,
        number: int,
        input: FragmentInput,
        element: Train | Boundary | Shed | None,
        next_seq: int,
        boundary_us: int,
        note: bytes,
        *,
        payload: Buffer | None = None,
    ) -> None:
        cost = ITEM_BYTES + len(note)
        if payload is not None:  # What came goes on as it is. That is asked much faster than a batch is.
            cost += memoryview(payload).nbytes
        elif isinstance(element, Train):
            cost += element.batch.nbytes
        self.queue.append(
            FedElement(kind, number, input, element, next_seq, boundary_us, note, cost, payload)
        )
        self.nbytes += cost
        self.items += 1


class StandbyChangeFeed(ChangeFeed):
    """For a secondary, which follows for as long as it can: its owner waits for it with nothing that it
    feeds.

    Attributes:
        copied: the checkpoint that goes ahead was read, so that the owner takes others.
    """

    def __init__(self) -> None:
        super().__init__()
        self.copied = False
        self._hurries = False

    @property
    def full(self) -> bool:
        return False

    @property
    def due(self) -> bool:
        """There is something to send."""
        return bool(self.queue)

    @property
    def hurries(self) -> bool:
        """There was more in the queue than rows and boundaries since it was last empty: a publisher, or a
        checkpoint."""
        return self._hurries

    @property
    def ships_checkpoints(self) -> bool:
        """The secondary has what the owner's newest checkpoint holds that was sent, and nothing since."""
        return False

    @property
    def holds_checkpoints(self) -> bool:
        return self.begun and not self.copied

    def begins(self, token: int, decided: int) -> None:
        if self.begun:
            self._hurries = True
            self.queue.append(CheckpointMark(token))
        super().begins(token, decided)

    def joined(self, input: FragmentInput, number: int) -> None:
        self._hurries = self._hurries or self.begun
        super().joined(input, number)

    def offer(self, mark: Mark) -> None:
        """Who takes over could begin there; only one that follows by marks is sent it."""

    def read(self) -> None:
        """The checkpoint is in memory."""
        self.copied = True

    def fed(self, work: Work) -> None:
        if not self.queue:
            self._hurries = False
        super().fed(work)
        if self.nbytes >= BEHIND_MAX and not self.broken:
            self.broken = f"it is {self.nbytes >> 20:,} MiB behind"
            self.queue.clear()
