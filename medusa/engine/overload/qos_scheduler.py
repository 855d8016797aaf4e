"""Which output's work runs next, where work waits for several.

Two levels, as Aurora's (Carney et al., VLDB 2003, "Operator scheduling in a data stream manager"): first
an output is chosen, by what its waiting rows lose in utility if they wait on, then its boxes are run from
the output up (the traversal of least latency), whole trains at a time.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence

from medusa.elements import Element, Train
from medusa.engine.core.box import Now, Operator
from medusa.engine.qos.box_costs import BoxCosts
from medusa.engine.qos.delay_utility import NOTHING, Utility, infer, latency_graphs
from medusa.ports import Clock
from medusa.query.boxes import Graph

__all__ = ["Ordering", "OutputScheduler", "QosScheduler", "RoundRobinScheduler", "latency_outputs"]

STEP_US = 5_000
"""A step takes as many whole trains as are thought to take so long: what is more urgent waits no longer
than that, unless one train takes it, and choosing costs little beside it."""

ELEMENTS_MAX = 256
"""Of a step, but for the boundaries behind its last train."""

SKIPS_MAX = 32
"""An output with work that has been passed over so often is next: 3 % of the steps, so nothing starves."""

REFRESH_STEPS = 32
"""How often what was measured is inferred inward again, and once more for each box."""

SAMPLES = 16
"""Ages of waiting elements that are looked at before each box."""

LEAST_GAIN = 1e-9


class _Waiting(list[tuple[int, Element]]):
    """Elements that wait before a box, when they (or what caused them) entered, and since when they wait."""

    def __init__(self, place: int, busy: set[int], now: Now) -> None:
        super().__init__()
        self.entered: list[int] = []
        self.since: list[int] = []
        self._place = place
        self._busy = busy
        self._now = now

    def append(self, pair: tuple[int, Element], /) -> None:
        super().append(pair)
        us = self._now.us or 0
        entered = self._now.entered_us
        self.entered.append(us if entered is None else entered)
        self.since.append(us)
        self._busy.add(self._place)

    def take(self, count: int) -> tuple[list[tuple[int, Element]], list[int], list[int]]:
        made = self[:count], self.entered[:count], self.since[:count]
        del self[:count], self.entered[:count], self.since[:count]
        if not self:
            self._busy.discard(self._place)
        return made

    def clear(self) -> None:
        self.take(len(self))


class OutputScheduler(ABC):
    """Work waits before each box; each step runs some of it through to one output.

    Outputs are the boxes that nothing reads: sinks, and boxes that lead nowhere. The order in which an
    output's work runs is that of its arrival before each box. So answers depend on the order of steps
    only where the order of arrival over several inputs shows (a union, and what is below it); boxes that
    merge by time give the same.

    Args:
        boxes: inputs before those that read them.
        clock: measures what boxes take.
        now: told the time and when that entered which is worked on.
        outputs: utility by delay in microseconds, of sinks that have it.
    """

    def __init__(
        self, boxes: Sequence[Operator], clock: Clock, now: Now, outputs: Mapping[str, Utility]
    ) -> None:
        self._holds = False
        self._boxes = list(boxes)
        for box in boxes:
            box.give_at_once()  # a step takes whole trains through
        self._clock = clock
        self._now = now
        self._graphs = dict(outputs)
        self._busy: set[int] = set()
        self._queues = [_Waiting(place, self._busy, now) for place in range(len(self._boxes))]
        self._readers: list[list[int]] = [[] for _ in self._boxes]
        self._above: dict[int, frozenset[int]] = {}
        self._measured = BoxCosts(self._boxes)
        self._skips: dict[int, int] = {}

    def connect(self, origin: Operator, port: str, target: int, input: int) -> None:
        """Draw an arc to an input of the box at place ``target``; all before the first step."""
        origin.connect(port, self._queues[target], input)
        readers = self._readers[self._boxes.index(origin)]
        if target not in readers:
            readers.append(target)

    # Running

    def hold(self, holds: bool = True) -> None:
        """From now on ``run`` does nothing: who drives it calls ``step``. Or no longer so."""
        self._holds = holds

    def run(self, until_us: int | None = None) -> None:
        """Run until nothing waits, unless somebody holds it.

        Args:
            until_us: or until a step has ended at or after this moment of the clock.
        """
        while not self._holds and self.step():
            if until_us is not None and self._clock.monotonic_us() >= until_us:
                return

    def run_until(self, rests: Callable[[], bool] | None) -> bool:
        """The same; each step is whole, so it comes to rest in one go unless somebody holds it."""
        self.run()
        return not self._busy

    def waiting_bytes(self) -> int:
        """Bytes of the rows that wait between boxes."""
        trains = (element for queue in self._queues for _, element in queue if isinstance(element, Train))
        return sum(int(train.batch.nbytes) for train in trains)

    def step(self) -> bool:
        """Run some whole trains through to one output; False: nothing waits, and nothing happened."""
        if not self._busy:
            return False
        if not self._above:
            self._above = _above(self._readers)
        waiting = [output for output, above in self._above.items() if not above.isdisjoint(self._busy)]
        output = waiting[0] if len(waiting) == 1 else self._next(waiting)
        for other in waiting:
            self._skips[other] = 0 if other == output else self._skips.get(other, 0) + 1
        self._traverse(output)
        return True

    def _next(self, waiting: Sequence[int]) -> int:
        skipped = max(waiting, key=lambda output: (self._skips.get(output, 0), -output))
        if self._skips.get(skipped, 0) >= SKIPS_MAX:
            return skipped
        return self.choose(waiting)

    @abstractmethod
    def choose(self, waiting: Sequence[int]) -> int:
        """One of several outputs that work waits for, by their places, ascending."""

    def _traverse(self, output: int) -> None:
        above = self._above[output]
        place = max(each for each in self._busy if each in above)
        self._run(place, self._whole(place, output))
        # Nothing waited below it, so what does now came of this.
        for below in sorted(each for each in above if each > place):
            if self._queues[below]:
                self._run(below, len(self._queues[below]))

    def _whole(self, place: int, output: int) -> int:
        """How many elements that wait before a box make a step."""
        each_us = self._measured.cost_us(place, self._readers, self._above[output])
        took_us = 0.0
        for count, (_, element) in enumerate(self._queues[place]):
            if isinstance(element, Train):
                # What a row takes is not known before the first train has run.
                if count and (took_us >= STEP_US or count >= ELEMENTS_MAX or not each_us):
                    return count
                took_us += each_us * len(element)
        return len(self._queues[place])

    def _run(self, place: int, count: int) -> None:
        box, now = self._boxes[place], self._now
        elements, entered, since = self._queues[place].take(count)
        before = [(self._queues[each], len(self._queues[each])) for each in self._readers[place]]
        begin_us = self._clock.monotonic_us()
        for (input, element), entered_us in zip(elements, entered, strict=True):
            now.pass_to(begin_us, entered_us)
            box.receive(input, element)
        end_us = self._clock.monotonic_us()
        now.pass_to(end_us)
        box.was_busy(end_us - begin_us)
        for queue, length in before:
            queue.since[length:] = [end_us] * (len(queue.since) - length)
        self._measured.ran(place, end_us - begin_us, end_us - sum(since) / len(since))

    def clear(self) -> None:
        """Forget what waits, after a box has raised."""
        for queue in self._queues:
            queue.clear()

    # What is asked about it

    @property
    def waits(self) -> bool:
        """Something waits."""
        return bool(self._busy)

    @property
    def oldest_us(self) -> int | None:
        """When the oldest of what waits entered; None: nothing waits."""
        return min((self._queues[place].entered[0] for place in self._busy), default=None)

    def waiting(self) -> dict[str, int]:
        """Rows that wait before each box that has some."""
        return {
            self._boxes[place].id: sum(len(e) for _, e in self._queues[place] if isinstance(e, Train))
            for place in sorted(self._busy)
        }

    def times_us(self) -> dict[str, float]:
        """T_B of each box: how long elements took to pass it, queueing and processing, smoothed."""
        return {box.id: self._measured.passing_us[place] for place, box in enumerate(self._boxes)}


class RoundRobinScheduler(OutputScheduler):
    """Outputs with work take turns: what ``QosScheduler`` is compared with."""

    _last = -1

    def choose(self, waiting: Sequence[int]) -> int:
        self._last = min(waiting, key=lambda output: (output <= self._last, output))
        return self._last


class QosScheduler(OutputScheduler):
    """The output whose utility falls fastest for what its work costs, then the most urgent one.

    Of each output: how much utility its waiting elements lose, on average, while the most expensive step
    that waits runs, by the graphs inferred inward to the boxes where they stand, divided by what a step
    of this output costs. Of equal ones (those that lose nothing, above all) that which begins to fall
    first, then that which has been passed over most often. Given the same elements and the same readings
    of the clock it chooses the same.
    """

    def __init__(
        self, boxes: Sequence[Operator], clock: Clock, now: Now, outputs: Mapping[str, Utility]
    ) -> None:
        super().__init__(boxes, clock, now, outputs)
        self._before: list[Utility] = []
        self._refresh_in = 0

    def choose(self, waiting: Sequence[int]) -> int:
        self._refresh()
        now_us = self._clock.monotonic_us()
        costs = {output: self._step_cost(output) for output in waiting}
        within_us = max(costs.values())
        losses = {place: self._loss(place, now_us, within_us) for place in self._busy}

        def rank(output: int) -> tuple[float, float, int, int]:
            places = [place for place in self._above[output] if place in losses]
            elements = sum(len(self._queues[place]) for place in places)
            lost = sum(losses[place][0] * len(self._queues[place]) for place in places) / elements
            rate = lost / costs[output] if lost >= LEAST_GAIN else 0.0
            slack = min(losses[place][1] for place in places)
            return rate, -slack, self._skips.get(output, 0), -output

        return max(waiting, key=rank)

    def _refresh(self) -> None:
        self._refresh_in -= 1
        if self._before and self._refresh_in > 0:
            return
        self._refresh_in = REFRESH_STEPS + len(self._boxes)
        self._measured.refresh()
        ids = [box.id for box in self._boxes]
        readers = {ids[place]: [ids[each] for each in below] for place, below in enumerate(self._readers)}
        leaving = infer(ids, readers, self._graphs, self.times_us())
        # The wait before the box is in the age already; what is still to come is its processing.
        self._before = [leaving[id].shift(self._measured.running_us[place]) for place, id in enumerate(ids)]

    def _step_cost(self, output: int) -> float:
        """What the next step of an output is thought to take, in microseconds; at least 1."""
        place = max(each for each in self._busy if each in self._above[output])
        each_us = self._measured.cost_us(place, self._readers, self._above[output])
        taken = self._queues[place][: self._whole(place, output)]
        return max(1.0, each_us * sum(len(element) for _, element in taken if isinstance(element, Train)))

    def _loss(self, place: int, now_us: int, within_us: float) -> tuple[float, float]:
        """Of what waits before a box: the mean loss if it waits on, and when the first begins to lose."""
        graph, entered = self._before[place], self._queues[place].entered
        if graph is NOTHING:
            return 0.0, math.inf
        ages = [now_us - each for each in entered[:: -(-len(entered) // SAMPLES)]]
        # Of so few numbers each by itself: numpy takes longer to wake.
        lost = sum(graph.of(age) - graph.of(age + within_us) for age in ages)
        return lost / len(ages), graph.slack(max(ages))


class Ordering:
    """The ``scheduler`` of a fragment that goes by the latency graphs of its sinks, and a hold on it.

    A fragment asks for a scheduler again whenever its query changes; this speaks for the one at work.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._scheduler: OutputScheduler | None = None
        self._holds = False

    def __call__(self, graph: Graph, boxes: Sequence[Operator], now: Now) -> OutputScheduler:
        self._scheduler = QosScheduler(boxes, self._clock, now, latency_graphs(graph))
        self._scheduler.hold(self._holds)
        return self._scheduler

    @property
    def holds(self) -> bool:
        """Work is done by ``step`` only: a push leaves it waiting."""
        return self._holds

    def hold(self, holds: bool = True) -> None:
        """From now on ``holds``, or no longer."""
        self._holds = holds
        if self._scheduler is not None:
            self._scheduler.hold(holds)

    @property
    def waits(self) -> bool:
        """Something waits."""
        return self._scheduler is not None and self._scheduler.waits

    @property
    def oldest_us(self) -> int | None:
        """When the oldest of what waits entered; None: nothing waits."""
        return None if self._scheduler is None else self._scheduler.oldest_us


def latency_outputs(graph: Graph) -> bool:
    """Whether there is anything to choose between: several ends, at least one with a latency graph."""
    read = {arc.box for box in graph.boxes for arc in box.inputs}
    return bool(latency_graphs(graph)) and sum(box.id not in read for box in graph.boxes) > 1


def _above(readers: Sequence[Sequence[int]]) -> dict[int, frozenset[int]]:
    """Of each box that nothing reads: itself and every box above it."""
    inputs: list[list[int]] = [[] for _ in readers]
    for place, below in enumerate(readers):
        for each in below:
            inputs[each].append(place)
    made = {}
    for place, below in enumerate(readers):
        if below:
            continue
        found, stack = {place}, [place]
        while stack:
            for each in inputs[stack.pop()]:
                if each not in found:
                    found.add(each)
                    stack.append(each)
        made[place] = frozenset(found)
    return made
