"""A run that shows how it does: drawn by its load, and over HTTP."""

from __future__ import annotations

import weakref
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from medusa.engine.load_view import loads
from medusa.engine.stats import told_apart
from medusa.errors import QueryError
from medusa.query.render.diagram import Diagram
from medusa.runtime.embedded.views import ViewingRun
from medusa.runtime.metrics.server import MetricsServer, open_for_run, run_figures

if TYPE_CHECKING:
    from typing import TypeVar

    from medusa.runtime.embedded.attached import AttachedRun

    R = TypeVar("R", bound="WatchedRun")

__all__ = ["WatchedRun", "serving"]


class WatchedRun(ViewingRun):
    """A run with a drawing of its own, which can serve its figures until it is closed."""

    _metrics: MetricsServer | None = None

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self._attached: weakref.WeakSet[AttachedRun] = weakref.WeakSet()  # one that nobody has costs nothing

    def stats(self, *, attached: bool = False) -> pa.Table:
        """One row per box: rows, rates, cost, lag, late, dead, bytes held, time spent, boundary.

        docs/metrics.md describes each column.

        Args:
            attached: behind them the boxes of queries that are attached, with two columns more: ``query``,
                its name, and ``attached``, the label of that query; null for the boxes of the run.
        """
        with self._state:
            own = super().stats()
            if not attached:
                return own
            others = sorted(self._attached, key=lambda each: each._number)
            each_table = [(each._fragment.graph.name, each.label, each.stats()) for each in others]
            return told_apart([(self._fragment.graph.name, None, own), *each_table])

    def diagram(self, *, load: bool = True) -> Diagram:
        """A drawing of the query: SVG, which notebooks show, and Mermaid text.

        Args:
            load: the busier a box was in the last seconds the darker it is, so that the bottleneck is
                seen; with the rows that wait, and who holds back whom. Without it, as ``q.diagram()``.
        """
        rows = self.stats().to_pylist()
        with self._state:
            graph = self._fragment.graph
            found = loads(graph, self._fragment.boxes, rows) if load else None
        return Diagram(graph, found)

    def serve_metrics(self, address: str, *, public: bool = False) -> None:
        """Serve the figures of ``stats`` over HTTP until the run is closed: what ``md.start`` does with
        ``metrics=``; here for a run that goes on already. docs/metrics.md.

        Args:
            address: ``host:port``; port 0 takes a free one, see ``metrics_address``.
            public: other machines may reach it.

        Raises:
            QueryError: no address, or one that can't be served at; no prometheus-client; served already.
            StateError: the run is closed.
        """
        with self._state:
            self._refuse_closed()
            if self._metrics is not None:
                raise QueryError(
                    f"metrics: this run serves them already, at {self._metrics.address}", code="query.metrics"
                )
            server = open_for_run(address, public=public)
            try:
                server.serve(partial(run_figures, self))
            except BaseException:
                server.close()
                raise
            self._metrics = server

    @property
    def metrics_address(self) -> str | None:
        """Where metrics are served, ``host:port``; None: nowhere."""
        return None if self._metrics is None else self._metrics.address

    def _end(self, *, save: bool) -> None:
        try:
            super()._end(save=save)
        finally:
            if self._metrics is not None:
                self._metrics.close()
                self._metrics = None


def serving(run: R, address: str | None, *, public: bool) -> R:
    """The run, serving its metrics where an address is given.

    Raises:
        QueryError: as ``serve_metrics``; the run is closed and has written nothing.
    """
    if address is not None:
        try:
            run.serve_metrics(address, public=public)
        except BaseException:
            run._give_up()
            raise
    return run
