"""What every demonstration runs on: node processes in a folder, and threads that are watched together."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from pathlib import Path
from typing import Any, TypeVar

from medusa.apps.workloads.demos.screens import DemoProgress, DemoScreen
from medusa.apps.workloads.interruption import Interruption
from medusa.apps.workloads.local_nodes import LocalNodes
from medusa.errors import LinkError

__all__ = ["Crew", "started"]

N = TypeVar("N", bound=LocalNodes)
T = TypeVar("T")

LOOK_EVERY_S = 0.02

END_S = 10.0
"""A thread ends in this time, once its connection is closed."""


@contextlib.contextmanager
def started(
    make: Callable[[Path, Interruption], N],
    screen: DemoScreen,
    *,
    prefix: str,
    keep: bool,
    title: Callable[[str], str] = str,
) -> Iterator[tuple[N, Path, Interruption]]:
    """Nodes of a demonstration, their folder, and the interruption that stops them in order.

    Args:
        make: makes the nodes in a new folder.
        prefix: of the folder's name.
        keep: leave the folder behind.
        title: of a node, by its name.
    """
    with Interruption() as interruption:
        folder = Path(tempfile.mkdtemp(prefix=prefix))
        try:
            with make(folder, interruption) as nodes:
                for name, pid in nodes.pids.items():
                    screen.say(f"node {title(name)} is process {pid} at {nodes.addresses[name]}")
                yield nodes, folder, interruption
        finally:
            if keep:
                screen.say(f"kept: {folder}")
            else:
                shutil.rmtree(folder, ignore_errors=True)


class Crew:
    """Threads of one run: the failure of one ends it, and so does an interruption, at the next look.

    Attributes:
        running: what was started and may still run, in order.
        cancelled: the run has failed, or was interrupted.
    """

    def __init__(self, screen: DemoScreen, progress: DemoProgress, interruption: Interruption) -> None:
        self.cancelled = False
        self.running: list[Future[Any]] = []
        self._over = threading.Event()
        self._screen, self._progress = screen, progress
        self._interruption = interruption
        self._failure: BaseException | None = None

    def start(self, work: Callable[..., T], *arguments: Any) -> Future[T]:
        """Run work in a thread that doesn't outlive the program, as those of an executor may."""
        future: Future[T] = Future()

        def run() -> None:
            try:
                future.set_result(work(*arguments))
            except BaseException as failure:
                self._failure = self._failure or failure
                future.set_exception(failure)

        threading.Thread(target=run, daemon=True).start()
        self.running = [*(each for each in self.running if not each.done()), future]
        return future

    @contextlib.contextmanager
    def at_work(self) -> Iterator[contextlib.ExitStack]:
        """The whole run, in the main thread. When it is over what was opened is closed, and threads end."""
        try:
            with self._interruption, contextlib.ExitStack() as stack:
                yield stack
        except BaseException:
            self.cancelled = True
            raise
        finally:
            self.end()
            wait(self.running, END_S)

    def end(self) -> None:
        """The run is over: threads hear it when they pause."""
        self._over.set()

    def pause(self, seconds: float) -> bool:
        """Let time pass, in a thread; whether the run is over."""
        return self._over.wait(seconds)

    def look(self) -> None:
        """Show how far it is.

        Raises:
            BaseException: that with which a thread has ended first.
            KeyboardInterrupt: it was interrupted.
        """
        if self._failure is not None:
            raise self._failure
        self._interruption.check()
        self._screen.update(self._progress)

    def sleep_until(self, due_s: float, every_s: float) -> None:
        """Look until ``time.perf_counter`` says so."""
        while (left_s := due_s - time.perf_counter()) > 0:
            time.sleep(min(left_s, every_s))
            self.look()

    def wait(
        self,
        done: Callable[[], bool],
        missing: Callable[[], str],
        timeout_s: float,
        *,
        came: Callable[[], int] | None = None,
    ) -> None:
        """Look until something is done, and once behind it.

        Args:
            missing: what isn't there, for the error's message.
            came: counts what has come of it; whenever that grows the time begins anew. None: nothing does.

        Raises:
            LinkError: it took too long; besides, what ``look`` raises.
        """
        deadline, seen = time.monotonic() + timeout_s, 0 if came is None else came()
        while not done():
            self.look()
            if came is not None and (now := came()) > seen:
                deadline, seen = time.monotonic() + timeout_s, now
            elif time.monotonic() > deadline:
                raise LinkError(f"{missing()} after {timeout_s:.0f} s", code="link.drain")
            time.sleep(LOOK_EVERY_S)
        self.look()

    def result(
        self, future: Future[T], missing: str, timeout_s: float, *, came: Callable[[], int] | None = None
    ) -> T:
        """What a thread returned; ``wait`` for it."""
        self.wait(future.done, lambda: missing, timeout_s, came=came)
        return future.result()
