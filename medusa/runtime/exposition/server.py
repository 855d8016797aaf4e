"""Serves the figures of what runs over HTTP: ``/metrics`` for Prometheus, ``/stats`` for ``medusa top``.

One thread takes connections, one more for each answers; all they want of the run is ``ask``.
"""

from __future__ import annotations

import os
import socket
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import msgspec

from medusa.errors import ConfigError, LinkError, MedusaError, QueryError
from medusa.nodes.config.endpoint import check_endpoint
from medusa.runtime.client.status.bounded_streams import bounded_streams
from medusa.runtime.exposition.prometheus import families
from medusa.runtime.exposition.prometheus_node import node_families
from medusa.wire.status_and_metrics import NodeStatus, status_of

if TYPE_CHECKING:
    from prometheus_client.core import Metric
    from prometheus_client.registry import Collector

    from medusa.runtime.embedded.run import Run
    from medusa.runtime.node.loop import NodeLoop

__all__ = ["Figures", "MetricsServer", "Rows", "node_figures", "open_for_run", "run_figures"]

Rows: TypeAlias = Sequence[Mapping[str, Any]]
"""Of each box its query, name, kind and statistics."""


class Figures(NamedTuple):
    """What is served: of boxes, and of a node also its status."""

    boxes: Rows
    node: NodeStatus | None = None


REQUEST_TIMEOUT_S = 10.0
ANSWER_TIMEOUT_S = 5.0


class MetricsServer:
    """Listens from the beginning, answers once ``serve`` was called, until ``close``.

    Attributes:
        address: ``host:port``, the port that was taken.
    """

    def __init__(self, host: str, port: int) -> None:
        """Listen.

        Raises:
            ConfigError: prometheus-client isn't installed, or it can't listen there.
        """
        try:
            import prometheus_client  # noqa: F401
        except ImportError as error:
            raise ConfigError(
                "metrics: the package prometheus-client is not installed",
                hint="pip install 'medusa-streams[metrics]'",
                code="config.metrics.extra",
            ) from error
        kind = _SixServer if ":" in host else _Server
        try:
            self._server = kind((host, port), _Handler)
        except OSError as error:
            raise ConfigError(
                f"metrics: can't listen on {host}:{port}: {error.strerror or error}",
                hint="port 0 takes a free one",
                code="config.metrics.listen",
            ) from error
        self._closing = False
        self._thread: threading.Thread | None = None
        _SERVERS.add(self)
        at = f"[{host}]" if ":" in host else host
        self.address = f"{at}:{self._server.server_address[1]}"

    def serve(self, ask: Callable[[], Figures]) -> None:
        """Answer, in threads of its own.

        Args:
            ask: called by any thread; what it raises of ours (the run is closed, say) answers 503.
        """
        self._server.ask = ask
        thread = threading.Thread(target=self._take, name="medusa-metrics", daemon=True)
        thread.start()
        self._thread = thread

    def _take(self) -> None:
        # Not serve_forever: it looks at a clock several times a second, and so ends late.
        while not self._closing:
            self._server.handle_request()
        self._server.server_close()

    def close(self) -> None:
        """End; the port is free when this returns. A second time does nothing."""
        self._closing = True
        if self._thread is None:
            self._server.server_close()
            return
        if self._thread.is_alive():
            family, target = self._server.address_family, self._server.server_address
            with suppress(OSError), socket.socket(family, socket.SOCK_STREAM) as caller:
                caller.settimeout(1)
                caller.connect(target)  # the thread waits for a caller, and then sees
        self._thread.join(REQUEST_TIMEOUT_S)

    def leave_to_parent(self) -> None:
        """In a child after a fork: its socket goes, and the parent's stays open."""
        self._closing = True
        self._thread = None
        self._server.leave_to_parent()


_SERVERS: weakref.WeakSet[MetricsServer] = weakref.WeakSet()


def _after_fork() -> None:
    """In a child: it has the sockets, but nobody who answers there, and would keep the ports."""
    for server in list(_SERVERS):
        server.leave_to_parent()


os.register_at_fork(after_in_child=_after_fork)


def open_for_run(address: str, *, public: bool) -> MetricsServer:
    """Listen for a run.

    Raises:
        QueryError: no address, one that isn't free or that other machines reach, or no prometheus-client.
    """
    try:
        return MetricsServer(*check_endpoint(address, public=public, allow="metrics_public=True"))
    except ConfigError as error:
        code = error.code.replace("config.", "query.")
        raise QueryError(error.message, hint=error.hint, code=code) from error


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 32
    ask: Callable[[], Figures] | None = None

    def leave_to_parent(self) -> None:
        self.socket.close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of callers that hang up."""


class _SixServer(_Server):
    address_family = socket.AF_INET6


class _Handler(BaseHTTPRequestHandler):
    timeout = REQUEST_TIMEOUT_S

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path not in ("/metrics", "/stats"):
            self._answer(404, "text/plain", b"/metrics is for Prometheus, /stats for medusa top\n")
            return
        assert isinstance(self.server, _Server)
        assert self.server.ask is not None
        try:
            figures = self.server.ask()
        except MedusaError as error:
            self._answer(503, "text/plain", f"{error.message}\n".encode())
            return
        if path == "/stats":
            streams = [] if figures.node is None else stream_rows(figures.node)
            stats = {"boxes": figures.boxes, "streams": streams}
            self._answer(200, "application/json", msgspec.json.encode(stats))
        else:
            self._answer(200, *_text(figures, self.headers.get("Accept", "")))

    def _answer(self, status: int, type: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the run's program decides what is printed."""


class _Collector:
    """Hands families to a registry."""

    def __init__(self, figures: Figures) -> None:
        self._figures = figures

    def collect(self) -> list[Metric]:
        boxes, node = self._figures
        return [*families(boxes), *(() if node is None else node_families(node))]


def _text(figures: Figures, accepted: str) -> tuple[str, bytes]:
    """(type, text) in the form that the caller likes best."""
    from prometheus_client import CollectorRegistry
    from prometheus_client.exposition import choose_encoder

    registry = CollectorRegistry(auto_describe=False)
    collector: Collector = _Collector(figures)
    registry.register(collector)
    encode, type = choose_encoder(accepted)
    return type, encode(registry)


def node_figures(loop: NodeLoop) -> Figures:
    """What the status of a node says of its boxes, its load and its links."""
    try:
        status = status_of(loop.ask().result(ANSWER_TIMEOUT_S))
    except TimeoutError:
        raise LinkError("the node didn't answer in time", code="link.timeout") from None
    return Figures(status_rows(status), status)


def status_rows(status: NodeStatus) -> Rows:
    """The boxes in the status of a node."""
    return [
        {
            "node": status.node,
            "query": fragment.query,
            "fragment": fragment.fragment,
            "box": id,
            **msgspec.structs.asdict(box),
        }
        for fragment in status.fragments
        for id, box in fragment.boxes.items()
    ]


def stream_rows(status: NodeStatus) -> Rows:
    """The streams with ``delay`` in the status of a node, and how they are."""
    return [
        {
            "node": each.node,
            "query": each.query,
            "fragment": each.fragment,
            "stream": each.stream,
            **msgspec.to_builtins(each.consistency),
        }
        for each in bounded_streams([status])
    ]


def run_figures(run: Run) -> Figures:
    """What ``run.stats()`` says, and of attached queries with their label; boundaries in microseconds."""
    table = run.stats(attached=True)
    place = table.schema.get_field_index("boundary")
    table = table.set_column(place, "boundary", table.column(place).cast("int64"))
    rows: list[dict[str, Any]] = table.to_pylist()
    for row in rows:
        if row["attached"] is None:
            del row["attached"]
    return Figures(rows)
