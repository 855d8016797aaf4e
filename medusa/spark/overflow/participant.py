"""What makes a node a participant that runs on Spark: it says what it can and how fast, and takes fragments.

It takes those whose boxes run there, in the time that is asked for: ``reason`` looks at the boxes and the
latency, and at nothing else. What a node takes of others at all is decided in ``nodes.deploy.admission``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from medusa.engine.fragment import Fragment
from medusa.errors import LinkError, QueryError
from medusa.nodes.deploy.admission import ClusterNow
from medusa.nodes.spec.fragment_spec import FragmentSpec as Spec
from medusa.ports import Clock
from medusa.query.boxes import Graph, Sink, Source
from medusa.query.codec import refuse_unregistered
from medusa.query.graph import label_of, reads_dead_of_several
from medusa.query.user_registry import registered
from medusa.spark import support
from medusa.spark.overflow.executor import Executor
from medusa.spark.overflow.remote_fragment import RemoteFragment
from medusa.units import duration_text

__all__ = ["KINDS", "Participant", "TriggerLatency", "reason", "worth_until_us"]

TRIGGERS_KEPT = 200
"""Of which latencies are told. Too few: one slow trigger counts for long; too many: a change shows late."""

TOLD_EVERY_US = 30_000_000
"""What the catalog says is looked at again so often."""


KINDS = tuple(
    sorted(kind for kind, way in support.WAYS.items() if way is not support.Way.REFUSED and kind != "union")
)
"""Boxes that are taken, as the catalog lists them."""


def reason(spec: Spec, *, latency_us: int) -> tuple[str, str]:
    """Why a fragment isn't taken, and what can be done about it; empty: it is taken.

    Args:
        latency_us: so much later results come there, but for one in a hundred.
    """
    graph = spec.graph
    try:
        support.check(graph, support.read_ports(graph), judged=True)
        refuse_unregistered(graph, "Spark")
    except QueryError as error:
        return error.message, error.hint or "leave it at a node that runs its fragments itself"
    if spec.delay_us:
        text = "an output that it feeds has delay=, and no copy of it could go on while an input is missing"
        return text, "leave it at a node that runs its fragments itself"
    return _undecided(graph) or _of_program(graph) or _too_late(graph, latency_us) or ("", "")


def _undecided(graph: Graph) -> tuple[str, str] | None:
    """What depends on more than the rows of each input."""
    for box in graph.boxes:
        if isinstance(box, Source) and box.idle_us is not None and not box.judged:
            text = f"{label_of(box)} has idle=, which the clock of its node decides"
            return text, "publish boundaries where a stream is known to be silent"
        if box.determinism == "arbitrary" or (reads_dead_of_several(graph) and len(box.inputs) > 1):
            text = f"what {label_of(box)} sends depends on how its inputs interleave, which its node logs"
            return text, "sunion merges streams in the same order everywhere"
    return None


def _of_program(graph: Graph) -> tuple[str, str] | None:
    for box in graph.boxes:
        for function in box.functions:
            made = registered(function.name, function.version)
            if getattr(made, "__module__", "__main__") == "__main__":
                text = (
                    f"{label_of(box)}: function {function.name!r} is in no module that workers could import"
                )
                return text, "put it in a module, and name that in `functions` of the configuration"
    return None


def _too_late(graph: Graph, latency_us: int) -> tuple[str, str] | None:
    for box in graph.boxes:
        if not isinstance(box, Sink):
            continue
        until_us = worth_until_us(box)
        if until_us is not None and latency_us >= until_us:
            text = (
                f"{label_of(box)} wants its rows before {duration_text(until_us)}, and here 1 in 100 comes "
                f"{duration_text(latency_us)} later"
            )
            return text, "leave it at a node, or ask for less: qos=md.QoS(latency=...)"
    return None


def worth_until_us(sink: Sink) -> int | None:
    """The delay from which on its rows are worth least; None: nobody said, or it is all the same."""
    points = None if sink.qos is None else sink.qos.latency
    if points is None or points[0][1] == points[-1][1]:
        return None
    return next(delay_us for delay_us, worth in points if worth == points[-1][1])


class TriggerLatency:
    """How long the last triggers took, and how much of that was no work.

    Args:
        least_us: that is told whatever was measured.
    """

    def __init__(self, least_us: int = 0) -> None:
        self._least_us = least_us
        self._took_us: tuple[int, ...] = ()  # replaced, not changed: two threads look at it
        self._beside_us: tuple[int, ...] = ()

    def add(self, took_us: int, worked_us: int = 0) -> None:
        """One more, of which cores had to work for so long."""
        self._took_us = (*self._took_us[1 - TRIGGERS_KEPT :], took_us)
        self._beside_us = (*self._beside_us[1 - TRIGGERS_KEPT :], max(took_us - worked_us, 0))

    @property
    def overhead_us(self) -> int:
        """What half of the triggers took at most beside their work."""
        ordered = sorted(self._beside_us)
        return ordered[len(ordered) // 2] if ordered else 0

    def quantile(self, share: float) -> int:
        """So many of the triggers took no longer; 0 to 1."""
        ordered = sorted(self._took_us)
        found = ordered[min(int(share * len(ordered)), len(ordered) - 1)] if ordered else 0
        return max(found, self._least_us)


class Participant:
    """An ``Elsewhere`` of a node.

    Args:
        node: its name.
        shards: None: as many as there are cores.
        ended: called when the node ends.
    """

    def __init__(
        self,
        executor: Executor,
        *,
        node: str,
        clock: Clock,
        latency: TriggerLatency,
        shards: int | None = None,
        ended: Callable[[], None] = lambda: None,
    ) -> None:
        self._executor = executor
        self._node = node
        self._clock = clock
        self._latency = latency
        self._shards = executor.cores if shards is None else shards
        self._ended = ended
        self._told: dict[str, Any] = {}
        self._told_us = 0

    def take(self, name: str, fragment: Fragment) -> RemoteFragment:
        """See ``Elsewhere``."""
        return RemoteFragment(
            fragment,
            self._executor,
            key=name,
            shards=self._shards,
            clock=self._clock,
            ran=self._latency.add,
        )

    def accept(self, spec: Spec) -> None:
        """See ``Elsewhere``. What is fed waits for the trigger before, so twice its time counts."""
        if down := self._executor.down:
            hint = "start the participant again: it goes on from its checkpoints"
            text = f"node {self._node!r} runs on Spark, and {down}"
            raise LinkError(text, hint=hint, code="E_DECLINED")
        text, hint = reason(spec, latency_us=2 * self._latency.quantile(0.99))
        if text:
            raise LinkError(f"node {self._node!r} runs on Spark: {text}", hint=hint, code="E_DECLINED")

    def cluster(self) -> ClusterNow:
        """See ``Elsewhere``."""
        return ClusterNow(overhead_us=self._latency.overhead_us, down=self._executor.down)

    def told(self) -> dict[str, Any]:
        """See ``Elsewhere``; another answer at most every 30 s, since the whole federation hears it."""
        now_us = self._clock.monotonic_us()
        if not self._told or now_us - self._told_us >= TOLD_EVERY_US:
            self._told_us = now_us
            latency_us = self._latency.quantile(0.5), self._latency.quantile(0.99)
            cores = self._executor.cores
            self._told = {"engine": "spark", "cores": cores, "latency_us": latency_us, "kinds": KINDS}
        return self._told

    def close(self) -> None:
        """See ``Elsewhere``."""
        self._ended()
