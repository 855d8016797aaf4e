"""What makes a node a participant that runs on Spark: takes fragments, and says what it can and how fast."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from medusa.engine.fragment import Fragment
from medusa.errors import LinkError
from medusa.nodes.spec.fragment_spec import Fragment as Spec
from medusa.ports import Buffer, Clock
from medusa.query.boxes import Graph
from medusa.spark.overflow.accept import KINDS, reason
from medusa.spark.overflow.executor import Executor
from medusa.spark.overflow.group import Made
from medusa.spark.overflow.remote_fragment import RemoteFragment

__all__ = ["TriggerLatency", "Participant"]

TRIGGERS_KEPT = 200
"""Of which latencies are told. Too few: one slow trigger counts for long; too many: a change shows late."""

TOLD_EVERY_US = 30_000_000
"""What the catalog says is looked at again so often."""


class TriggerLatency:
    """How long the last triggers took.

    Args:
        least_us: that is told whatever was measured.
    """

    def __init__(self, least_us: int = 0) -> None:
        self._least_us = least_us
        self._took_us: tuple[int, ...] = ()  # replaced, not changed: two threads look at it

    def add(self, took_us: int) -> None:
        """One more."""
        self._took_us = (*self._took_us[1 - TRIGGERS_KEPT :], took_us)

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
        self._executor = _Timed(executor, clock, latency)
        self._node = node
        self._clock = clock
        self._latency = latency
        self._shards = executor.cores if shards is None else shards
        self._ended = ended
        self._told: dict[str, Any] = {}
        self._told_us = 0

    def take(self, name: str, fragment: Fragment) -> RemoteFragment:
        """See ``Elsewhere``."""
        return RemoteFragment(fragment, self._executor, key=name, shards=self._shards, clock=self._clock)

    def accept(self, spec: Spec) -> None:
        """See ``Elsewhere``. What is fed waits for the trigger before, so twice its time counts."""
        if down := self._executor.down:
            hint = "start the participant again: it goes on from its checkpoints"
            text = f"node {self._node!r} runs on Spark, and {down}"
            raise LinkError(text, hint=hint, code="E_DECLINED")
        text, hint = reason(spec, latency_us=2 * self._latency.quantile(0.99))
        if text:
            raise LinkError(f"node {self._node!r} runs on Spark: {text}", hint=hint, code="E_DECLINED")

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


class _Timed:
    """An executor whose triggers are timed."""

    def __init__(self, executor: Executor, clock: Clock, latency: TriggerLatency) -> None:
        self._executor = executor
        self._clock = clock
        self._latency = latency

    @property
    def cores(self) -> int:
        return self._executor.cores

    @property
    def down(self) -> str:
        return self._executor.down

    def begin(self, key: str, groups: Mapping[int, tuple[Graph, Mapping[str, Buffer]]]) -> None:
        self._executor.begin(key, groups)

    def run(self, key: str, work: Mapping[int, bytes]) -> dict[int, Made]:
        begun_us = self._clock.monotonic_us()
        made = self._executor.run(key, work)
        self._latency.add(self._clock.monotonic_us() - begun_us)
        return made

    def states(self, key: str) -> dict[int, dict[str, Buffer]]:
        return self._executor.states(key)

    def end(self, key: str) -> None:
        self._executor.end(key)
