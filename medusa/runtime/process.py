"""``medusa node``: one node as a process, from its configuration to its last checkpoint."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from types import FrameType

from medusa.errors import ConfigError, StateError
from medusa.mind.brain import Brain
from medusa.mind.settings import Settings, parse
from medusa.runtime.clock import SystemClock
from medusa.runtime.files import FolderStore
from medusa.runtime.host import FragmentHost
from medusa.runtime.introduction import Introduction
from medusa.runtime.loop import NodeLoop
from medusa.runtime.metrics import MetricsServer, node_rows
from medusa.runtime.node_keys import load_keys
from medusa.runtime.recovery import recover
from medusa.runtime.reloading import security_again
from medusa.runtime.zeromq import Transport
from medusa.wire.outbox import Report

__all__ = ["import_functions", "load_settings", "run_node"]

STOP_TIMEOUT_US = 10_000_000
CONFIG_BYTES_MAX = 1 << 20
SAME_LINE_S = 10.0
"""The same report again within so many seconds is counted, not printed."""


def run_node(config: str | os.PathLike[str], *, as_json: bool = False) -> None:
    """Run a node until SIGTERM or SIGINT; then its last checkpoint is on disk.

    SIGHUP makes a node with keys read who may do what again.

    Prints one line to standard output once it listens: ``node edge-1 listening on tcp://...``, or
    ``{"node": ..., "listening": ...}``. Reports go to standard error.

    Raises:
        ConfigError: the configuration can't be read or isn't right.
        StateError: the data folder can't be used, or the last checkpoint couldn't be written.
        LinkError: it can't listen at its address.
    """
    settings = load_settings(config)
    keys = load_keys(settings)
    import_functions(settings)
    clock = SystemClock()
    log = _Log(settings.name)
    store = _open_store(settings)
    with contextlib.ExitStack() as stack:
        stack.callback(store.close)
        found = recover(store, clock, node=settings.name, warn=log.warn)
        transport = Transport(listen=settings.listen, peers=settings.peers, key=keys.own)
        stack.callback(transport.close)
        if settings.security is not None and settings.security.introduce and keys.own is not None:
            introduction = Introduction(settings.security.introduce, keys.own.public)
            stack.callback(introduction.close)
            log.report(Report(level="info", what=f"introduces itself at {introduction.address}"))
        host = FragmentHost(store, clock, wake=transport.wake)
        stack.callback(host.stop)
        found.resume(host)
        brain = Brain(
            settings,
            incarnation=found.incarnation,
            catalog=found.catalog,
            saved=found.saved,
            first_token=found.first_token,
            verify=keys.verify,
            certificate=keys.certificate,
        )
        reload = partial(security_again, config, settings, load_settings)
        loop = NodeLoop(brain, transport, host, clock, say=log.report, reload=reload)
        if settings.metrics is not None:
            server = MetricsServer(*settings.metrics)
            stack.callback(server.close)
            server.serve(partial(node_rows, loop))
            log.report(Report(level="info", what=f"metrics at http://{server.address}/metrics"))
        with _signals(loop, reload=settings.security is not None):
            _announce(settings.name, transport.endpoint, as_json)
            if not loop.run(stop_timeout_us=STOP_TIMEOUT_US):
                raise StateError(
                    f"node {settings.name!r}: the last checkpoint could not be written",
                    hint="peers and publishers keep what it didn't cover and resend it at the next start",
                    code="state.last",
                )


def import_functions(settings: Settings) -> None:
    """Import the modules that the configuration lists, so that what they register is there.

    Raises:
        ConfigError: one can't be imported, for whatever reason.
    """
    for name in settings.functions:
        try:
            import_module(name)
        except Exception as error:
            raise ConfigError(
                f"functions: module {name!r} can't be imported: {type(error).__name__}: {error}",
                hint="it is looked for as by `python -m`: install it, or set PYTHONPATH",
                code="config.functions",
            ) from error


def load_settings(config: str | os.PathLike[str]) -> Settings:
    """Read the configuration of a node; a relative ``data`` is relative to the file's folder.

    Raises:
        ConfigError: it can't be read, or something in it isn't right.
    """
    path = Path(config)
    try:
        if path.stat().st_size > CONFIG_BYTES_MAX:
            raise ConfigError(f"{path} is larger than {CONFIG_BYTES_MAX:,} bytes", code="config.size")
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path} can't be read: {error.strerror}", code="config.file") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is no UTF-8 text: {error}", code="config.file") from None
    return parse(text, where=str(path), folder=str(path.resolve().parent))


def _open_store(settings: Settings) -> FolderStore:
    try:
        Path(settings.data).mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StateError(
            f"the data folder {settings.data} can't be made: {error.strerror}",
            hint="give `data` a folder that this user may write",
            code="state.io",
        ) from None
    return FolderStore(settings.data)


def _announce(name: str, endpoint: str, as_json: bool) -> None:
    """The line that whoever started us waits for."""
    line = json.dumps({"node": name, "listening": endpoint})
    with contextlib.suppress(BrokenPipeError):
        print(line if as_json else f"node {name} listening on {endpoint}", flush=True)


@contextlib.contextmanager
def _signals(loop: NodeLoop, *, reload: bool) -> Iterator[None]:
    def stop(number: int, frame: FrameType | None) -> None:
        loop.stop()

    def read_again(number: int, frame: FrameType | None) -> None:
        loop.reload()

    before = {each: signal.signal(each, stop) for each in (signal.SIGTERM, signal.SIGINT)}
    if reload:  # Else it goes on to mean that the terminal was closed.
        before[signal.SIGHUP] = signal.signal(signal.SIGHUP, read_again)
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


class _Log:
    """Lines on standard error; what repeats is counted. Text of peers is escaped and cut."""

    LEVELS = ("info", "warning", "error")

    def __init__(self, node: str) -> None:
        self._node = node
        self._seen: dict[str, tuple[float, int]] = {}

    def warn(self, text: str) -> None:
        self.report(Report(level="warning", what=text))

    def report(self, report: Report) -> None:
        if report.level not in self.LEVELS:
            return
        fields = " ".join(f"{key}={_safe(value)}" for key, value in report.fields.items())
        line = f"{report.level} {_safe(report.what, 1000)} {fields}".rstrip()
        now = time.monotonic()
        since, count = self._seen.get(line, (-SAME_LINE_S, 0))
        if now - since < SAME_LINE_S:
            self._seen[line] = (since, count + 1)
            return
        if len(self._seen) > 1000:
            self._seen.clear()
        self._seen[line] = (now, 0)
        again = f" ({count} times more)" if count else ""
        stamp = time.strftime("%H:%M:%S")
        with contextlib.suppress(BrokenPipeError):
            print(f"{stamp} {self._node} {line}{again}", file=sys.stderr, flush=True)


def _safe(value: str | int, most: int = 300) -> str:
    if isinstance(value, int):
        return str(value)
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in value[:most])
