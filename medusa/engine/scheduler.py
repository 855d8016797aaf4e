"""Runs the boxes of a fragment until none has anything left to do, all at once or a slice at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from medusa.elements import Element, Train
from medusa.engine.core.box import Operator
from medusa.ports import Clock

__all__ = ["Scheduler"]

QUEUE_MAX = 64
"""Elements before one box beyond which the boxes below it take theirs first: a chain of boxes that each send
one element on twice would hold 2^n of them."""


class Scheduler:
    """Trains wait before each box; a box takes all of its own before the next box runs.

    Boxes stand in an order in which inputs come first, so one pass over them leaves nothing
    waiting, and what a box sees doesn't depend on anything but the elements fed.

    A box with more output than a piece (``Operator.steps``) gives it piece by piece, and what is below it
    takes each piece before the next is made. Where streams meet whose order of arrival shows (``union``), the
    boxes that lead there and the one where they meet keep the order of a pass: each waits until no box before
    it has work left, and pieces pile up.

    Args:
        clock: measures how long each box was busy; without one nobody knows.
        relieve: called after each piece and after a run, to move to disk what is too much.
    """

    def __init__(
        self, boxes: Sequence[Operator], clock: Clock | None = None, relieve: Callable[[], None] | None = None
    ) -> None:
        self._waiting: list[deque[tuple[int, Element]]] = [deque() for _ in boxes]
        # With what is called after each train, so that boxes of many kinds aren't asked for it.
        self._places = [(box, queue, box.was_busy) for box, queue in zip(boxes, self._waiting, strict=True)]
        self._moment = None if clock is None else clock.monotonic_us
        self._relieve = relieve
        self._origins: list[set[int]] = [set() for _ in boxes]
        self._numbers = {box.id: place for place, box in enumerate(boxes)}
        self._above: list[set[int]] = []
        """Of each box: see ``_find_above``. Empty: not known yet."""
        self._stepping: set[Operator] = set()
        """Boxes with ``steps``: mostly there are none, and then boxes aren't asked for them."""
        for box in boxes:
            box.give_in_steps(self._stepping)

    def connect(self, origin: Operator, port: str, target: int, input: int) -> None:
        """Draw an arc to an input of the box at place ``target``."""
        origin.connect(port, self._waiting[target], input)
        self._origins[target].add(self._numbers[origin.id])
        self._above = []

    def run(self) -> None:
        """Run to quiescence."""
        self.run_until(None)

    def run_until(self, rests: Callable[[], bool] | None) -> bool:
        """Run to quiescence, or until ``rests`` says so after a piece; whether nothing is left.

        Args:
            rests: asked after each piece: an element that makes no more than one is never split.
        """
        moment, stepping = self._moment, self._stepping
        begin = moment() if moment is not None else 0
        whole = True
        for box, queue, was_busy in self._places:
            if not queue:
                if stepping and box.steps is not None:  # It was left so by the slice before.
                    whole = False
                    break
                continue
            waiting = len(queue)
            if waiting > QUEUE_MAX or (stepping and box.steps is not None):
                whole = False
                break
            receive = box.receive
            taken = 0
            for input, element in queue:
                receive(input, element)
                taken += 1
                if stepping and box.steps is not None:
                    break
            if taken == waiting:  # No box sends to itself.
                queue.clear()
            else:
                for _ in range(taken):
                    queue.popleft()
            if moment is not None:
                end = moment()
                was_busy(end - begin)
                begin = end
            if stepping and box.steps is not None:
                whole = False
                break
        if not whole and not self._run_pieces(rests):
            return False
        if self._relieve is not None:
            self._relieve()
        return True

    def _run_pieces(self, rests: Callable[[], bool] | None) -> bool:
        """The same, one element or piece at a time, from the lowest box that may go on."""
        moment = self._moment
        while (place := self._next()) is not None:
            box, queue, was_busy = self._places[place]
            begin = moment() if moment is not None else 0
            if box.steps is not None:
                box.step()
            else:
                input, element = queue.popleft()
                box.receive(input, element)
            if moment is not None:
                was_busy(moment() - begin)
            if self._relieve is not None:
                self._relieve()
            if rests is not None and rests() and self.waits:
                return False
        return True

    def _next(self) -> int | None:
        """The lowest box with work that may do it now."""
        if not self._above:
            self._above = self._find_above()
        busy = [place for place, (box, queue, _) in enumerate(self._places) if queue or box.steps is not None]
        for place in reversed(busy):
            if self._above[place].isdisjoint(busy):
                return place
        return None

    def _find_above(self) -> list[set[int]]:
        """Of each box, those that must be idle before it takes anything: all that come before it where what
        it emits reaches an input of a box whose answer depends on the order of arrival; else none."""
        places = range(len(self._places))
        ordered = {
            place
            for place in places
            if len(self._origins[place]) > 1 and not self._places[place][0].interleaves_freely
        }
        for place in reversed(places):
            if place in ordered:
                ordered |= self._origins[place]
        return [set(range(place)) if place in ordered else set() for place in places]

    @property
    def waits(self) -> bool:
        """Something is left to do."""
        return any(queue or box.steps is not None for box, queue, _ in self._places)

    def waiting_bytes(self) -> int:
        """Bytes of the rows that wait between boxes."""
        trains = {
            id(element.batch): element
            for queue in self._waiting
            for _, element in queue
            if isinstance(element, Train)
        }
        return sum(_train_bytes(train) for train in trains.values())

    def step(self) -> bool:
        """The same; False: nothing waited."""
        waited = self.waits
        self.run()
        return waited

    def clear(self) -> None:
        """Forget what waits, after a box has raised."""
        for box, queue, _ in self._places:
            queue.clear()
            box.forget_steps()


def _train_bytes(train: Train) -> int:
    """With the times, though they may be one of the columns."""
    return int(train.batch.nbytes) + (0 if train.times is None else int(train.times.nbytes))
