"""What tasks take, and what a node has to do beside them: by CPU time, whoever has the processors as well."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from medusa.nodes.config.settings import Settings
from medusa.nodes.load.loads import NodeLoads, Usage
from medusa.nodes.market.measured_tasks import MeasuredTasks
from medusa.wire.outbox import Outbox
from medusa.wire.status_and_metrics import SmoothedLoad

SECOND_US = 1_000_000


class Loads:
    """A process that takes 0.3 cores beside boxes: of its own fragment, and of two that it follows.

    Args:
        on_processor: the share of the time of boxes in which they have a processor.
    """

    def __init__(self, on_processor: float = 1.0) -> None:
        self.on_processor = on_processor
        self.beside_cores: float | None = 0.3

    def fragment(self, name: str) -> SmoothedLoad | None:
        return SmoothedLoad(rows_in_per_s=100.0, busy_share=0.3) if name == "q/own" else None

    def cpu_cores(self, fragment: str) -> float | None:
        return 0.3 * self.on_processor if fragment == "q/own" else None

    def followed_cores(self, without: Collection[str] = ()) -> float:
        followed = {"q/spare": 0.2, "p/guest": 0.1}
        return sum(share for name, share in followed.items() if name not in without)


@pytest.mark.parametrize(("coming", "cores"), [((), 0.6), (("p/guest",), 0.5), (("p/other",), 0.6)])
def test_what_is_followed_counts_unless_it_is_a_guest_to_come(coming: Collection[str], cores: float) -> None:
    measured = MeasuredTasks("alice", Loads())
    tasks = measured.look(["q/own"], {})
    assert [each.use.cpu_cores for each in tasks] == pytest.approx([0.3])
    assert measured.idle(coming).cpu_cores == pytest.approx(cores)


def test_time_in_which_others_have_the_processor_is_not_paid_for() -> None:
    measured = MeasuredTasks("alice", Loads(on_processor=0.25))
    [task] = measured.look(["q/own"], {})
    assert task.use.cpu_cores == pytest.approx(0.3 / 4)
    assert measured.on_processor == 0.25


def test_what_runs_elsewhere_is_no_load_of_the_process() -> None:
    measured = MeasuredTasks("alice", Loads(on_processor=0.25), in_process=False)
    [task] = measured.look(["q/own"], {})
    assert task.use.cpu_cores == pytest.approx(0.3), "as long as it was at work"
    assert (measured.on_processor, measured.idle(()).cpu_cores) == (1, 0)


class Process:
    """A process with fragments of which each has 0.1 cores for every second.

    Args:
        on_processor: so much of the time that boxes take they have a processor.
    """

    def __init__(self, on_processor: float = 1.0) -> None:
        self.hosted: dict[str, object] = {}
        self.loads = NodeLoads(Settings(name="n", listen="ipc:///n", data="n"), Outbox(), self.hosted)  # type: ignore[arg-type]
        self.measured = MeasuredTasks("alice", self.loads)
        self._on_processor = on_processor
        self._took = {"cpu": 0.0, "engine": 0.0}
        self._boxes: dict[str, float] = {}
        self._now_us = 0

    def runs(self, seconds: int, *fragments: str, beside: float = 0.2) -> None:
        for name in fragments:
            self.hosted.setdefault(name, _Hosted())
            self._boxes.setdefault(name, 0.0)
        for name in set(self.hosted) - set(fragments):
            del self.hosted[name], self._boxes[name]
        for _ in range(2 * seconds):
            for name in fragments:
                figures = {"kind": "source", "rows_in": round(self._boxes[name]), "rows_out": 0}
                busy_us = round(self._boxes[name] / self._on_processor)
                boxes = {"a": {**figures, "busy_us": busy_us}}
                self.loads.told(self._now_us, name, boxes, round(self._boxes[name]))
                self._boxes[name] += 0.05 * SECOND_US
            cpu_us, engine_us = (round(each) for each in self._took.values())
            self.loads.used(self._now_us, Usage(cpu_us, engine_us, 0, 2))
            self.loads.tick(self._now_us, ())
            took = 0.05 * len(fragments) * SECOND_US
            self._took["cpu"] += took + beside / 2 * SECOND_US
            self._took["engine"] += took
            self._now_us += SECOND_US // 2

    def load(self) -> tuple[float, float]:
        """Cores of its tasks, and beside them."""
        tasks = self.measured.look(list(self.hosted), {})
        return sum(each.use.cpu_cores for each in tasks), self.measured.idle(()).cpu_cores


class _Hosted:
    under_way = False
    inputs: dict[str, object] = {}  # noqa: RUF012
    outputs: dict[str, object] = {}  # noqa: RUF012


@pytest.mark.parametrize("on_processor", [1.0, 0.2])
def test_a_node_is_rid_of_what_went_at_once(on_processor: float) -> None:
    """What the process took for a task that has gone isn't load of something else for seconds: that would
    shed the next one too."""
    process = Process(on_processor)
    names = [f"q/{number}" for number in range(4)]
    process.runs(30, *names)
    assert process.load() == (pytest.approx(0.4, rel=0.03), pytest.approx(0.2, abs=0.02))
    assert process.loads.on_processor == pytest.approx(on_processor)
    process.runs(1, *names[:1])
    assert process.load() == (pytest.approx(0.1, rel=0.1), pytest.approx(0.2, abs=0.03))


def test_what_the_process_takes_beside_boxes_is_unknown_until_it_says_so() -> None:
    loads = NodeLoads(Settings(name="n", listen="ipc:///n", data="n"), Outbox(), {})
    assert (loads.beside_cores, loads.on_processor) == (None, 1.0)
    loads.used(0, Usage(0, None, 0, 2))
    loads.used(SECOND_US, Usage(300_000, None, 0, 2))
    assert (loads.beside_cores, loads.on_processor) == (pytest.approx(0.3), 1.0)
