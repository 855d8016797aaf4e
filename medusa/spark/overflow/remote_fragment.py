"""A fragment whose groups run elsewhere, trigger by trigger, with the answers of one that runs here.

Elements are gathered, and fed together: what stands above its box in shards, here; the shards, there; the
merge and what stands below, here, element by element. So each element has the output that it would have, in
the same order. Nothing waits in the merge between two elements, since all shards have taken the same ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from medusa.elements import Element, Shed, Train
from medusa.engine.fragment import Fragment
from medusa.engine.operators.ordered_merge import OrderedMergeBox
from medusa.engine.regrouping import merge_fragments, split_fragment
from medusa.engine.state.background_copy import BackgroundCopy
from medusa.engine.state.capture import Capture
from medusa.errors import DataError, StateError
from medusa.ports import Buffer, Clock
from medusa.query.boxes import Box, Source
from medusa.spark.overflow.executor import Executor, LostError
from medusa.spark.overflow.group import Made
from medusa.spark.overflow.items import FedItem, Item, decode_outputs, encode, unfit
from medusa.spark.overflow.sharding import ABOVE, BELOW, Cutting, cutting

__all__ = ["ElementAnswer", "RemoteFragment"]

WHOLE = "whole"
TRIES = 3
"""A trigger that is lost is done again, from the last checkpoint on, as often as this in a row."""

T = TypeVar("T")


@dataclass(slots=True)
class ElementAnswer:
    """What came of an element.

    Attributes:
        outputs: (sink, element), by sink.
        refused: why nothing of it was taken; empty: it was.
        shed: rows of it that were left out, as whoever drives the fragment has decided.
    """

    outputs: list[tuple[str, Element]] = field(default_factory=list)
    refused: str = ""
    shed: int = 0


class _Counted:
    """What is known of a box that runs elsewhere, as far as the host of fragments asks."""

    def __init__(self, spec: Box, figures: Mapping[str, Any]) -> None:
        self.spec = spec
        self.late: int = figures["late"]
        self.dead: int = figures["dead"]
        self._state_bytes: int = figures["state_bytes"]

    def state_bytes(self) -> int:
        return self._state_bytes


class RemoteFragment:
    """One fragment.

    Args:
        fragment: at rest; it is not used afterwards.
        key: by which the executor knows it.
        shards: of its keys, where it has a box that can be in shards.
        ran: called with how long each run of the executor took, and how long of that cores had to work: the
            group that had the most to do, or all of them on as many cores as there are; in microseconds.

    Raises:
        StateError: the executor doesn't take it.
    """

    def __init__(
        self,
        fragment: Fragment,
        executor: Executor,
        *,
        key: str,
        shards: int,
        clock: Clock,
        ran: Callable[[int, int], None] = lambda took_us, worked_us: None,
    ) -> None:
        self.graph = fragment.graph
        self.sinks = tuple(fragment.sinks)
        self._key = key
        self._executor = executor
        self._clock = clock
        self._report_run = ran
        self._cut = cutting(self.graph, shards)
        self._base: dict[str, Buffer] = fragment.snapshot()
        self._since: list[tuple[str, Element | Shed]] = []
        """What was fed since ``_base``."""
        self._gathered: list[tuple[str, Element | Shed]] = []
        self._here: dict[str, Fragment] = {}
        self._figures: dict[int, list[dict[str, Any]]] = {}
        self._told_busy_us: dict[tuple[int, str], int] = {}
        """Group and box -> for how long that was at work, as its group said last."""
        self._own = fragment.figures()
        self._kinds = {each["box"]: each["kind"] for each in self._own}
        self._try(partial(self._begin, fragment))

    def give(self, source: str, element: Element | Shed) -> None:
        """Take an element for the next trigger."""
        self._gathered.append((source, element))

    @property
    def waits(self) -> int:
        """Elements that were given and not fed."""
        return len(self._gathered)

    def trigger(self) -> list[ElementAnswer]:
        """Feed what was given, and say what came of each, in order.

        Raises:
            StateError: a group failed, or the executor did again and again: the fragment is of no use.
        """
        elements, self._gathered = self._gathered, []
        if not elements:
            return []
        answers = self._try(partial(self._feed, elements))
        self._since += elements
        return answers

    def copying(self) -> BackgroundCopy:
        """The state as that of a fragment that runs in one place: what was given and not fed isn't in it."""
        files = self._try(self._collected)
        self._base, self._since = files, []
        return BackgroundCopy(dict(files))

    def captured(self, capture: Capture | None, *, patient: bool = False) -> BackgroundCopy:
        """All of it, also where only what changed is asked for."""
        return self.copying()

    def held_up(self, silent: object) -> list[tuple[str, Element]]:
        """Sources with ``idle`` don't come here."""
        return []

    def close(self) -> None:
        """Let go of what is held elsewhere."""
        self._executor.end(self._key)

    # --- what the host asks -----------------------------------------------------------------------

    @property
    def boxes(self) -> dict[str, _Counted]:
        figures = {each["box"]: each for each in self.figures()}
        return {box.id: _Counted(box, figures[box.id]) for box in self.graph.boxes if box.id in figures}

    @property
    def sources(self) -> dict[str, _Counted]:
        return {id: each for id, each in self.boxes.items() if isinstance(each.spec, Source)}

    def figures(self) -> list[dict[str, Any]]:
        """Of the boxes of the graph, as ``Fragment.figures``; behind the last trigger."""
        known = {each["box"]: each for each in self._own}
        cut = self._cut
        if cut is None:
            known |= {each["box"]: each for each in self._figures.get(0, ())}
            return [dict(known[box.id]) for box in self.graph.boxes if box.id in known]
        for piece, fragment in self._here.items():
            ends = cut.arcs[piece]
            known |= {each["box"]: each for each in fragment.figures() if each["box"] not in ends}
        return [
            self._of_shards(known[box.id], cut) if box.id == cut.box else dict(known[box.id])
            for box in self.graph.boxes
            if box.id in known
        ]

    def _of_shards(self, merge: Mapping[str, Any], cut: Cutting) -> dict[str, Any]:
        """The box in shards: what they took and hold, and what the merge sent."""
        found = {**merge, "kind": self._kinds[cut.box]}
        parts = [
            each
            for number, figures in self._figures.items()
            for each in figures
            if each["box"] not in cut.arcs[cut.shards[number]]
        ]
        for name in ("rows_in", "late", "dead", "dropped", "tentative", "state_bytes", "busy_us"):
            found[name] = sum(each[name] for each in parts) + (merge[name] if name == "state_bytes" else 0)
        found["selectivity"] = found["rows_out"] / found["rows_in"] if found["rows_in"] else None
        return found

    # --- to begin, and to begin again ---------------------------------------------------------------

    def _try(self, do: Callable[[], T]) -> T:
        """Do it; where what is held elsewhere is lost, from the last checkpoint on."""
        lost: LostError | None = None
        for _ in range(TRIES):
            try:
                if lost is not None:
                    self._again()
                return do()
            except LostError as error:
                lost = error
        raise StateError(f"Spark failed {TRIES} times in a row: {lost}", code="state.spark")

    def _again(self) -> None:
        self._begin(Fragment.restore(self.graph, self._base, clock=self._clock))
        if self._since:
            self._feed(self._since)

    def _begin(self, fragment: Fragment) -> None:
        if self._cut is None:
            self._executor.begin(self._key, {0: (self.graph, fragment.snapshot())})
            return
        cut = self._cut
        made = split_fragment(fragment, cut.box, cut.whole, cut.graphs, cut.arcs, clock=self._clock).made
        self._here = {ABOVE: made[ABOVE], BELOW: made[BELOW]}
        self._figures = {
            number: self._as_busy_as_before(number, made[name].figures())
            for number, name in enumerate(cut.shards)
        }
        groups = {number: (cut.graphs[name], made[name].snapshot()) for number, name in enumerate(cut.shards)}
        self._executor.begin(self._key, groups)

    def _numbers(self) -> range:
        """Of the groups."""
        return range(1 if self._cut is None else len(self._cut.shards))

    def _collected(self) -> dict[str, Buffer]:
        states = self._executor.states(self._key)
        if lost := [number for number in self._numbers() if not states.get(number)]:
            raise LostError(f"the state of groups {lost} didn't come")
        if self._cut is None:
            return states[0]
        cut = self._cut
        olds = {ABOVE: self._here[ABOVE]}
        for number, name in enumerate(cut.shards):
            olds[name] = Fragment.restore(cut.graphs[name], states[number], clock=self._clock)
        olds[BELOW] = self._here[BELOW]
        opened = {WHOLE: self.graph}
        merged = merge_fragments(olds, cut.box, cut.whole, opened, cut.arcs, clock=self._clock)
        if any(isinstance(each, Train) for _, each in merged.outputs):
            raise StateError("rows waited in the merge of shards", code="state.spark")
        return merged.made[WHOLE].snapshot()

    # --- one trigger --------------------------------------------------------------------------------

    def _feed(self, elements: Sequence[tuple[str, Element | Shed]]) -> list[ElementAnswer]:
        answers = [ElementAnswer() for _ in elements]
        numbered = [(number, source, element) for number, (source, element) in enumerate(elements)]
        if self._cut is None:
            self._feed_whole(numbered, answers)
        else:
            self._feed_pieces(self._cut, numbered, answers)
        order = {sink: place for place, sink in enumerate(self.sinks)}
        for answer in answers:
            answer.outputs.sort(key=lambda output: order[output[0]])  # stable: each sink's in their order
        return answers

    def _feed_whole(self, items: Sequence[FedItem], answers: list[ElementAnswer]) -> None:
        sent: list[FedItem] = []
        for item in items:
            if why := unfit(item):
                answers[item[0]].refused = why
            else:
                sent.append(item)
        [(left, made)] = self._ran({0: sent}).values()
        for number, why in made.refused.items():
            answers[number].refused = why
        for number, rows in made.left_out.items():
            answers[number].shed = rows
        for number, sink, element in left:
            answers[number].outputs.append((sink, element))

    def _feed_pieces(self, cut: Cutting, items: Sequence[FedItem], answers: list[ElementAnswer]) -> None:
        above, below = self._here[ABOVE], self._here[BELOW]
        work: dict[int, list[FedItem]] = {number: [] for number in range(len(cut.shards))}
        numbers = {name: number for number, name in enumerate(cut.shards)}
        came: list[list[tuple[str, Element]]] = [[] for _ in items]
        """What goes from above to below, past the shards, and then what comes from them."""
        for number, source, element in items:
            try:
                above.feed(source, element)
            except DataError as error:
                answers[number].refused = str(error)
            answers[number].shed = above.ruled.take()  # all sources with rules are above
            for sink in above.sinks:
                piece, end = cut.links.get((ABOVE, sink), ("", sink))
                for each in above.drain(sink):
                    if not piece:
                        answers[number].outputs.append((sink, each))
                    elif piece == BELOW:
                        came[number].append((end, each))
                    else:
                        work[numbers[piece]].append((number, end, each))
        for group, (left, made) in self._ran(work).items():
            if made.refused:
                why = f"a shard refused what its router sent: {made.refused}"
                raise StateError(why[:500], code="state.spark")
            for number, sink, each in left:
                came[number].append((cut.links[cut.shards[group], sink][1], each))
        merges = [box for box in below.boxes.values() if isinstance(box, OrderedMergeBox)]
        for number, arrived in enumerate(came):
            for end, each in arrived:
                below.feed(end, each)
            for merge in merges:
                merge.flush()
            below.quiesce()
            for sink in below.sinks:
                answers[number].outputs += [(sink, each) for each in below.drain(sink)]

    def _worked(self, group: int, made: Made) -> int:
        """Take what a group counts by now; for how long its boxes were at work in this trigger."""
        worked_us, figures = 0, []
        for each in made.figures:
            key, told_us = (group, each["box"]), each["busy_us"]
            last_us = self._told_busy_us.get(key, 0)
            # Who has just read a group counts anew.
            more_us = told_us - last_us if told_us >= last_us else told_us
            self._told_busy_us[key] = told_us
            worked_us += more_us
            figures.append({**each, "busy_us": more_us})
        self._figures[group] = self._as_busy_as_before(group, figures)
        return worked_us

    def _as_busy_as_before(self, group: int, figures: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """These, and what its boxes had worked until now."""
        before_us = {each["box"]: each["busy_us"] for each in self._figures.get(group, ())}
        return [{**each, "busy_us": before_us.get(each["box"], 0) + each["busy_us"]} for each in figures]

    def _ran(self, work: Mapping[int, list[FedItem]]) -> dict[int, tuple[list[Item], Made]]:
        """What the groups made; those without work aren't asked."""
        found: dict[int, tuple[list[Item], Made]] = {number: ([], Made(items=b"")) for number in work}
        asked = {number: encode(items) for number, items in work.items() if items}
        answers: Mapping[int, Made] = {}
        if asked:
            begun_us = self._clock.monotonic_us()
            answers = self._executor.run(self._key, asked)
            busy_us = [self._worked(number, made) for number, made in answers.items()]
            # More groups than cores wait for each other: that is work too, which the price of cores has.
            worked_us = max(max(busy_us, default=0), sum(busy_us) // self._executor.cores)
            self._report_run(self._clock.monotonic_us() - begun_us, worked_us)
        if answers.keys() != asked.keys():
            raise LostError(f"of groups {sorted(asked)} only {sorted(answers)} answered")
        for number, made in answers.items():
            if made.failed:
                raise StateError(made.failed, code="state.spark")
            found[number] = decode_outputs(made.items), made
        return found
