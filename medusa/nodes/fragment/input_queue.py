"""What a fragment is fed next: what came, as it came, and before that what it was fed before a restart."""

from __future__ import annotations

from collections import ChainMap, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from medusa.elements import Boundary, Element, Train
from medusa.nodes.fragment.clock_decisions import ClockDecisions
from medusa.nodes.fragment.input_log import InputLog
from medusa.nodes.fragment.input_log_records import (
    JOINED,
    LOST,
    PROMISE,
    ROWS,
    SHED,
    Decision,
    InputReplay,
    share_of,
)
from medusa.nodes.fragment.inputs import FragmentInput, Work
from medusa.nodes.fragment.published_sources import PublishedSources
from medusa.nodes.fragment.rested_inputs import RestedInputs
from medusa.nodes.upstream_backup.warm_up import WarmUp
from medusa.wire.outbox import Outbox

__all__ = ["InputQueue"]


class InputQueue:
    """What waits for one fragment, and the order in which it gets it.

    Args:
        again: what it was fed after the checkpoint that it goes on from.
        inputs: all inputs by (source, peer); shared with its owner.
        next_token, memory_bytes_max, disk_bytes_max: as of ``RestedInputs``.

    Attributes:
        rested: what comes by sources that rest.
    """

    def __init__(
        self,
        fragment: str,
        again: Sequence[Decision],
        inputs: dict[tuple[str, str], FragmentInput],
        entries: PublishedSources,
        decided: InputLog,
        outbox: Outbox,
        clocked: ClockDecisions,
        *,
        next_token: Callable[[], int],
        memory_bytes_max: int,
        disk_bytes_max: int,
    ) -> None:
        self._fragment = fragment
        self._entries = entries
        self._decided = decided
        self._outbox = outbox
        self._clocked = clocked
        self._script = InputReplay(again, ChainMap(inputs, clocked.own)) if again else None
        self._waiting: deque[Work] = deque()
        self._told: dict[str, tuple[FragmentInput, int]] = {}
        """Source -> an input of it, and the share that is left out, to be told next."""
        self.rested = RestedInputs(
            fragment,
            memory_bytes_max=memory_bytes_max,
            disk_bytes_max=disk_bytes_max,
            next_token=next_token,
            outbox=outbox,
            asks_again=self._ask_again,
        )
        self._is_turn_of_rested = False
        self._has_asked_again = False
        self._joining: dict[FragmentInput, int] = {}
        """Publishers that the disk doesn't know -> the number of that decision; -1: to be noted."""
        self._warm_up: WarmUp | None = None
        decided.begin_again(len(again))

    def warms_up(self, warm_up: WarmUp) -> None:
        """This comes before all else."""
        self._warm_up = warm_up

    def renumbered(self, now_us: int) -> None:
        """Rows of an input come again under other numbers: what was decided of those of before is void."""
        if self._script is not None:
            script = self._script
            script.void("rows come again under other numbers")
            self._go_on(now_us, script)

    def warmed_up(self, now_us: int) -> None:
        """That is over: what came meanwhile is fed as it came."""
        assert self._warm_up is not None, "nothing was fed ahead"
        works, self._warm_up = self._warm_up.rest(), None
        if self._script is not None:
            self._script.add(works)
        else:
            self._waiting.extend(works)
            self._waiting.extend(self._entries.resume(now_us))

    @property
    def is_live(self) -> bool:
        """What comes is fed as it comes: nothing is to be fed again before it."""
        return self._script is None and self._warm_up is None

    @property
    def repeating(self) -> int:
        """Decisions of before the restart that are not done again yet."""
        return self._script.left if self._script is not None else 0

    @property
    def awaited(self) -> Collection[tuple[str, str]]:
        """(source, peer) of the inputs that are named in what is to be fed again."""
        return self._script.named if self._script is not None else ()

    def came(self, now_us: int, works: Sequence[Work]) -> None:
        """Take what an input brought."""
        self._clocked.came(now_us, works)
        if self._warm_up is not None:
            self._warm_up.add(works)
        elif self._script is not None:
            self._script.add(works)
        else:
            self._waiting.extend(works)

    @property
    def idle(self) -> bool:
        """Nothing is to be fed again, and the disk knows all publishers."""
        return self._script is None and not self._joining

    def waiting(self) -> list[Work]:
        """What has come, isn't fed and is in memory; not what was answered of silent sources: they are asked
        again."""
        own = self._clocked.own.values()
        ahead = [] if self._warm_up is None else self._warm_up.waiting()
        return [work for work in (*ahead, *self.rested.works(), *self._waiting) if work.input not in own]

    def _ask_again(self, now_us: int, input: FragmentInput) -> None:
        """What it brought since it was fed is gone from disk."""
        for work in [work for work in self._waiting if work.input is input]:
            self._waiting.remove(work)
            input.receiver.consumed(now_us, work.cost)
        self._has_asked_again = True
        input.ask_again(now_us)

    def has_asked_again(self) -> bool:
        """Whether something that had come was asked for again since the last call."""
        asked, self._has_asked_again = self._has_asked_again, False
        return asked

    def tells(self, input: FragmentInput, share_ppm: int) -> None:
        """From the next element on this share of what comes to the source of an input is left out: the one
        that was said last."""
        self._told[input.source] = input, share_ppm

    def waits(self, works: Iterable[Work]) -> None:
        """Take over what has come for another fragment."""
        self._waiting.extend(works)

    def joins(self, input: FragmentInput) -> None:
        """A publisher comes: its source doesn't end without it, also after a restart."""
        if self._script is None:
            self._joining[input] = self._note(JOINED, input, 0, True)
        else:
            self._joining[input] = -1

    @property
    def own(self) -> Mapping[tuple[str, str], FragmentInput]:
        """(source, this node) -> the input by which a silent source takes boundaries."""
        return self._clocked.own

    def joined_as(self, input: FragmentInput) -> int:
        """The number of the decision that it comes."""
        return self._joining.get(input, -1)

    def renamed(self, old: tuple[str, str], new: tuple[str, str]) -> None:
        """An input comes from another node from now on, with the same rows."""
        if self._script is not None:
            self._script.renamed(old, new)

    def joined(self) -> list[FragmentInput]:
        """Publishers of which the disk has learnt since the last call."""
        known = [each for each, number in self._joining.items() if 0 <= number < self._decided.durable]
        for each in known:
            del self._joining[each]
        return known

    def is_joining(self, input: FragmentInput) -> bool:
        """The disk hasn't learnt of this publisher yet."""
        return input in self._joining

    def tick(self, now_us: int) -> None:
        """Publishers that stayed away are waited for no more."""
        self.rested.tick(now_us)
        works = self._entries.tick(now_us)
        if self._script is None and self._warm_up is None:
            self._waiting.extend(works)
            self._clocked.tick(now_us)

    def wake_at_us(self) -> int | None:
        """When ``tick`` has work."""
        times = (self._entries.wake_at_us(), self._clocked.wake_at_us(), self.rested.wake_at_us())
        return min((time_us for time_us in times if time_us is not None), default=None)

    def idle_sources(self, now_us: int) -> list[str]:
        """Sources with ``idle`` that bring nothing at present."""
        return self._clocked.silent(now_us)

    def answered(self, boundaries: Iterable[tuple[str, Element]]) -> None:
        """The engine says how far silent sources hold boxes back."""
        self._waiting.extend(self._clocked.answered(boundaries))

    def next(self, now_us: int, *, noting: bool) -> Work | None:
        """What to feed or ask now, and its number; it may be that only a position moves (no element).

        Args:
            noting: what comes out depends on the order.
        """
        if self._warm_up is not None:
            return self._warm_up.next()
        if self._script is not None:
            work = self._repeated(self._script)
            if self._script.over:
                self._go_on(now_us, self._script)
            if work is not None or self._script is not None:
                return work
        if self._told:
            input, share_ppm = self._told.pop(next(iter(self._told)))
            return share_of(input, share_ppm).is_decided(self._note(SHED, input, share_ppm, noting))
        if (asked := self._clocked.ask(now_us, self._entries.fed_us)) is not None:
            return asked
        work = self._next_in_turn(now_us) if self.rested else self._next_waiting(now_us)
        return None if work is None else self._live(work, noting)

    def _next_in_turn(self, now_us: int) -> Work | None:
        """What rested comes before the rest of its source, and others don't wait until all of it has come."""
        self._is_turn_of_rested = not self._is_turn_of_rested
        if self._is_turn_of_rested:
            return self.rested.next(now_us) or self._next_waiting(now_us)
        return self._next_waiting(now_us) or self.rested.next(now_us)

    def _next_waiting(self, now_us: int) -> Work | None:
        while self._waiting:
            work = self._waiting.popleft()
            if not self.rested.takes(work):
                return work
            self.rested.add(now_us, work)
        return None

    def _live(self, work: Work, noting: bool) -> Work:
        input = work.input
        before_us = input.fed_us
        input.issued(work)
        if isinstance(work.element, Boundary):
            if (input.source, input.peer) in self._clocked.own:
                void = self._clocked.void(work)
                work.element = None if void else self._entries.raised(input.source, work.element)
            elif not input.judged:
                work.element = self._entries.advance(input.source)
            elif work.boundary_us <= before_us:
                work.element = None  # Fed before a restart, when it stood elsewhere among the rows.
            if work.element is not None:
                work.number = self._note(PROMISE, input, work.element.time_us, noting)
        else:
            kind = LOST if work.element is None else ROWS
            came_us = work.element.arrival_us if isinstance(work.element, Train) else None
            work.number = self._note(kind, input, work.next_seq, noting, came_us)
        self._clocked.fed(work)
        return work

    def _note(
        self, kind: int, input: FragmentInput, to: int, noting: bool, came_us: int | None = None
    ) -> int:
        return self._decided.note(Decision(kind, input.source, input.peer, to, came_us) if noting else None)

    # --- after a restart ------------------------------------------------------------------------

    def _repeated(self, script: InputReplay) -> Work | None:
        work = script.next()
        if work is not None:
            work.input.issued(work)
            work.number = self._decided.again()
            if isinstance(work.element, Boundary) and not work.input.judged:
                self._entries.fed_us[work.input.source] = work.element.time_us
        return work

    def _go_on(self, now_us: int, script: InputReplay) -> None:
        """All has been fed again, or the rest never can be: what came meanwhile is fed as it came."""
        self._script = None
        if not script.done:
            # What left because of the rest can't be made again. The log goes on behind it, once a
            # checkpoint says so.
            self._outbox.report(
                "error",
                "decisions not repeated",
                fragment=self._fragment,
                count=script.left,
                why=script.unfit or "a publisher didn't come back",
            )
            for input, first, rows in script.missing():
                self._outbox.report(
                    "error", "rows missing", stream=input.stream, peer=input.peer, rows=rows, first=first
                )
            self._decided.give_up()
        for input in self._joining:
            self._joining[input] = self._note(JOINED, input, 0, True)
        self._waiting.extend(script.rest())
        self._waiting.extend(self._entries.resume(now_us))
