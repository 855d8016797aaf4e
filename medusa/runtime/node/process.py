"""``medusa node``: one node as a process. Only signals, the first line and standard error are its own."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from types import FrameType

from medusa.nodes.config.settings import Settings
from medusa.runtime.engine_host.gathering import Elsewhere, running_elsewhere
from medusa.runtime.node.assembly import assembled
from medusa.runtime.node.configuration import import_functions, load_settings
from medusa.runtime.node.loop import NodeLoop
from medusa.runtime.node.reports import Reports

__all__ = ["run_node"]


def run_node(
    config: str | os.PathLike[str],
    *,
    as_json: bool = False,
    rebuild: bool = False,
    elsewhere: Callable[[Settings], Elsewhere] | None = None,
) -> None:
    """Run a node until SIGTERM or SIGINT; then its last checkpoint is on disk.

    SIGHUP makes a node with keys read who may do what again. Once the node has ended, this process ignores
    SIGTERM and SIGINT: another Ctrl-C doesn't interrupt what is still to be closed.

    Prints one line to standard output once it listens: ``node edge-1 listening on tcp://...``, or
    ``{"node": ..., "listening": ...}``. Reports go to standard error.

    Args:
        rebuild: its disk was lost: it gets what its peers know of it.
        elsewhere: makes what runs its fragments; None: the node does.

    Raises:
        ConfigError: the configuration can't be read or isn't right.
        StateError: the data folder can't be used, or the last checkpoint couldn't be written.
        LinkError: it can't listen at its address.
    """
    settings = load_settings(config)
    import_functions(settings)
    reports = Reports(partial(_tell, settings.name))
    with (
        running_elsewhere(settings, elsewhere) as there,
        assembled(settings, config=config, reports=reports, elsewhere=there, rebuild=rebuild) as node,
        _signals(node.loop, reload=settings.security is not None),
    ):
        _announce(node.name, node.address, as_json)
        node.run()


def _announce(name: str, address: str, as_json: bool) -> None:
    """The line that whoever started us waits for."""
    line = json.dumps({"node": name, "listening": address})
    with contextlib.suppress(BrokenPipeError):
        print(line if as_json else f"node {name} listening on {address}", flush=True)


def _tell(node: str, level: str, line: str) -> None:
    stamp = time.strftime("%Y-%m-%d %H:%M:%S")
    # Nobody reads, or the disk of the log is full: a node goes on without words.
    with contextlib.suppress(OSError):
        print(f"{stamp} {node} {level} {line}", file=sys.stderr, flush=True)


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
    except BaseException:
        for each, handler in before.items():
            signal.signal(each, handler)
        raise
    for each in before:
        signal.signal(each, signal.SIG_IGN)
