"""The figures of a run over HTTP."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from medusa.engine.run.gate import RunGate
from medusa.errors import QueryError
from medusa.runtime.exposition.server import MetricsServer, open_for_run, run_figures

if TYPE_CHECKING:
    from medusa.runtime.embedded.run import Run

__all__ = ["MetricsService", "serving"]


class MetricsService:
    """Serves the figures of a run until it is closed; at first it doesn't."""

    def __init__(self, gate: RunGate) -> None:
        self._gate = gate
        self._server: MetricsServer | None = None

    @property
    def address(self) -> str | None:
        """Where they are served, ``host:port``; None: nowhere."""
        return None if self._server is None else self._server.address

    def serve(self, run: Run, address: str, *, public: bool) -> None:
        """As ``md.Run.serve_metrics``."""
        with self._gate.asking():
            if self._server is not None:
                raise QueryError(
                    f"metrics: this run serves them already, at {self._server.address}", code="query.metrics"
                )
            server = open_for_run(address, public=public)
            try:
                server.serve(partial(run_figures, run))
            except BaseException:
                server.close()
                raise
            self._server = server

    def close(self) -> None:
        """Serve them no more."""
        server, self._server = self._server, None
        if server is not None:
            server.close()


def serving(run: Run, address: str | None, *, public: bool) -> Run:
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
