"""Changes of the query that a run goes on with: another one, or a box of it split or merged."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from medusa.engine.query_change import Change, Given, change_fragment
from medusa.engine.run.checkpoints import RunCheckpoints
from medusa.engine.run.gate import RunGate
from medusa.engine.run.idle_clock import IdleClock
from medusa.engine.run.intake import Check, RunIntake
from medusa.engine.run.output import RunOutput
from medusa.engine.run.run_warnings import RunWarnings
from medusa.engine.splitting import Repartition, merge_running, split_running
from medusa.ports import Clock
from medusa.query.boxes import Graph
from medusa.query.codec import refuse_unregistered
from medusa.query.graph import label_of
from medusa.query.user_registry import check_functions
from medusa.runtime.embedded.memory_options import check_sheds
from medusa.runtime.embedded.query_argument import graph_of
from medusa.runtime.store.history_store import check_in_memory

if TYPE_CHECKING:
    from medusa.query.builder import Query

__all__ = ["QueryChanges"]

T = TypeVar("T")


class QueryChanges:
    """Changes the query of a run, between pushes, with all parts that looked at its boxes."""

    def __init__(
        self,
        gate: RunGate,
        clock: Clock,
        settings: Mapping[str, Any],
        intake: RunIntake,
        time: IdleClock,
        warnings: RunWarnings,
        output: RunOutput,
        checkpoints: RunCheckpoints,
    ) -> None:
        self._fragment = gate.fragment
        self._clock = clock
        self._settings = settings
        self._intake = intake
        self._time = time
        self._warnings = warnings
        self._output = output
        self._checkpoints = checkpoints

    def change(self, query: Query, reset: Sequence[str]) -> Change:
        """As ``md.Run.change``."""
        graph = graph_of(query)
        check_functions({label_of(box): box.functions for box in graph.boxes})
        if self._checkpoints.written:
            refuse_unregistered(graph, "checkpoint=")
        self._check(graph)
        return self._at_rest(lambda: self._go_on_with(graph, query.functions, reset))

    def split(self, box: str, n: int | None, ranges: str | Sequence[int], block: int) -> tuple[str, ...]:
        """As ``md.Run.split``."""

        def split() -> tuple[str, ...]:
            self._fragment.quiesce()
            made = split_running(self._fragment, box, n, ranges=ranges, block=block)
            self._repartition(made)
            return made.parts

        return self._at_rest(split)

    def merge(self, box: str) -> None:
        """As ``md.Run.merge``."""

        def merge() -> None:
            self._fragment.quiesce()
            made = merge_running(self._fragment, box)
            made.before()
            self._repartition(made)

        self._at_rest(merge)

    def _at_rest(self, call: Callable[[], T]) -> T:
        """Have it done between pushes; boxes that go would take with them what isn't copied of them."""

        def begin(check: Check) -> T:
            self._checkpoints.rest()
            return call()

        return self._intake.in_order(begin)

    def _check(self, graph: Graph) -> None:
        """Raises QueryError where a graph can't run as this run was started."""
        check_sheds(self._settings, graph)
        check_in_memory(graph, self._settings)

    def _repartition(self, made: Repartition) -> None:
        self._check(made.graph)
        self._go_on_with(made.graph, made.functions, (), made.given)

    def _go_on_with(
        self,
        graph: Graph,
        functions: Mapping[str, object],
        reset: Sequence[str],
        given: Given | None = None,
    ) -> Change:
        """Change the query, within a turn; ``given``: as of ``change_fragment``."""
        fragment, intake = self._fragment, self._intake
        with intake.changing():
            fragment.at(self._clock.monotonic_us())
            made = change_fragment(
                fragment, graph, functions=functions, reset=reset, check=intake.check_change, given=given
            )
            self._time.look()
            self._warnings.look()
            self._output.forget(made.gone)
            intake.changed(made)
            self._checkpoints.change()
        return made
