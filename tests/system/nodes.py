"""Node processes for system tests: started, killed, started again, and gone at the end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TypeVar

from medusa.errors import LinkError, QueryError
from medusa.query.boxes.base import PART_OF_SPLIT

DEADLINE_S = 60.0
START_S = 3 * DEADLINE_S
"""Until a process says its first word: on a busy machine four that import it all at once took a minute."""

ROOT = Path(__file__).resolve().parents[2]

RUN = "import sys; from medusa.cli.main import main; sys.argv[0] = 'medusa'; main()"

TIMEOUT = f"{DEADLINE_S:.0f}s"
"""Of a client: on a busy machine nodes stand still for seconds, one after the other."""

PATIENT_READERS = 'subscriber_timeout = "10min"'
"""Of nodes whose readers rest: on a busy machine for longer than a plain one may."""

PATIENT_DEPLOYMENTS = 'deploy_timeout = "30s"'
"""All nodes have answered by then, also on a busy machine."""

AGAIN = ("E_BUSY", "E_TIMEOUT", "E_BROKEN", "E_STANDBY", "E_FRAGMENT", "link.timeout")
"""So an order is refused that may be given again: somebody didn't answer in time, or was just away."""

_T = TypeVar("_T")


class Nodes:
    """Nodes that all know each other, at ipc addresses in one folder."""

    def __init__(self, folder: Path, names: list[str], *, limits: str = "") -> None:
        self.folder = folder
        self.names = names
        self.limits = limits if "deploy_timeout" in limits else f"{PATIENT_DEPLOYMENTS}\n{limits}"
        self.addresses = {name: f"ipc://{folder}/{name}" for name in names}
        self.processes: dict[str, subprocess.Popen[str]] = {}
        for name in names:
            peers = "".join(f'{o} = "{self.addresses[o]}"\n' for o in names if o != name)
            self.config(name).write_text(
                f'name = "{name}"\nlisten = "{self.addresses[name]}"\ndata = "{name}.data"\n'
                f"[peers]\n{peers}[limits]\n{self.limits}\n"
            )

    def config(self, name: str) -> Path:
        return self.folder / f"{name}.toml"

    def data(self, name: str) -> Path:
        return self.folder / f"{name}.data"

    def log(self, name: str) -> str:
        path = self.folder / f"{name}.log"
        return path.read_text() if path.exists() else ""

    def start_anywhere(self, name: str) -> str:
        """Start one node at a free port of its choice; the address that it says."""
        text = self.config(name).read_text()
        self.config(name).write_text(text.replace(self.addresses[name], "tcp://127.0.0.1:*"))
        self._launch(name)
        return first_line(self.processes[name]).rsplit(" ", 1)[1]

    def _launch(self, name: str) -> None:
        with open(self.folder / f"{name}.log", "a") as log:
            self.processes[name] = subprocess.Popen(
                [sys.executable, "-c", RUN, "node", str(self.config(name))],
                stdout=subprocess.PIPE,
                stderr=log,
                stdin=subprocess.DEVNULL,
                text=True,
            )

    def start(self, *names: str) -> None:
        """Start nodes and wait until each says that it listens."""
        for name in names or self.names:
            self._launch(name)
        for name in names or self.names:
            line = self._first_line(name)
            assert line == f"node {name} listening on {self.addresses[name]}", (line, self.log(name))

    def _first_line(self, name: str) -> str:
        return first_line(self.processes[name])

    def kill(self, name: str) -> None:
        """``kill -9``."""
        process = self.processes.pop(name)
        process.kill()
        process.wait(DEADLINE_S)
        process.stdout.close()

    def stop(self, name: str) -> int:
        """SIGTERM; the exit code."""
        process = self.processes.pop(name)
        process.send_signal(signal.SIGTERM)
        code = process.wait(DEADLINE_S)
        process.stdout.close()
        return code

    def close(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait(DEADLINE_S)
            process.stdout.close()


class Forked:
    """A node out of the nursery, with what ``Nodes`` asks of a process.

    Args:
        order: what to run instead of the command with this configuration.
    """

    def __init__(self, nursery: Nursery, config: Path, log: Path, **order: str | list[str]) -> None:
        self._nursery = nursery
        self._out = config.with_suffix(".out")
        self._out.write_text("")
        self.stdout = self._out.open()
        self.pid = nursery.ask(**{"config": str(config), **order}, out=str(self._out), log=str(log))

    def said(self) -> str:
        """Its first line, once it is whole."""
        line, end, _ = self._out.read_text().partition("\n")
        return line if end else ""

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def wait(self, timeout: float = DEADLINE_S) -> int:
        return self._nursery.ask(wait=self.pid)


class Nursery:
    """See ``tests/system/nursery.py``."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "tests.system.nursery"]
        self._process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, **order: str | int | list[str]) -> int:
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return int(first_line(self._process))

    def close(self) -> None:
        self._process.stdin.close()
        self._process.wait(START_S)
        self._process.stdout.close()


class ForkedNodes(Nodes):
    """The same nodes, started by fork: what is tested is not how long Python takes to import.

    Args:
        nursery: that many tests use, and whoever made it closes; None: one of its own.
    """

    def __init__(
        self, folder: Path, names: list[str], *, limits: str = "", nursery: Nursery | None = None
    ) -> None:
        super().__init__(folder, names, limits=limits)
        self.nursery = Nursery() if nursery is None else nursery
        self._is_own = nursery is None

    def _launch(self, name: str, *options: str) -> None:
        log = self.folder / f"{name}.log"
        self.processes[name] = Forked(self.nursery, self.config(name), log, options=list(options))

    def start_with(self, name: str, *options: str) -> None:
        """Start one node with options of the command."""
        self._launch(name, *options)
        assert self._first_line(name).startswith(f"node {name} listening on"), self.log(name)

    def _first_line(self, name: str) -> str:
        return until(lambda: self.processes[name].said(), what=f"{name} listens", deadline_s=START_S)

    def close(self) -> None:
        super().close()
        if self._is_own:
            self.nursery.close()


def first_line(process: subprocess.Popen[str]) -> str:
    """The first line of standard output, or what is there when the process ends or time is over."""
    timer = threading.Timer(START_S, process.kill)
    timer.start()
    try:
        return process.stdout.readline().rstrip("\n")
    finally:
        timer.cancel()


def run_to_end(
    *arguments: str, env: dict[str, str] | None = None, timeout_s: float = DEADLINE_S
) -> subprocess.CompletedProcess[str]:
    """``medusa ARGUMENTS``, to its end."""
    return subprocess.run(
        [sys.executable, "-c", RUN, *arguments],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        env={**os.environ, **(env or {})},
        check=False,
    )


def until(condition, *, what="condition", deadline_s: float = DEADLINE_S, every_s: float = 0.02):
    """Ask again and again until the answer is true; the answer.

    Args:
        what: is waited for; a function says what there is by then.
        every_s: between two times that it is asked: what asks nodes for their status costs them work.
    """
    end = time.monotonic() + deadline_s
    while not (answer := condition()):
        assert time.monotonic() < end, f"not in time: {what() if callable(what) else what}"
        time.sleep(every_s)
    return answer


def eventually(check: Callable[[], _T], *, deadline_s: float = DEADLINE_S, every_s: float = 0.1) -> _T:
    """Check again and again until nothing is wrong any more; what the check gives.

    What nodes say of each other is news that takes a moment, on a busy machine for seconds: a peer that stood
    still is silent, a definition isn't known yet.
    """
    end = time.monotonic() + deadline_s
    while True:
        try:
            return check()
        except AssertionError:
            if time.monotonic() >= end:
                raise
        time.sleep(every_s)


def ordered(
    order: Callable[[], _T], *, again: Collection[str] = AGAIN, deadline_s: float = 2 * DEADLINE_S
) -> _T:
    """Give an order, and give it again where it was left undone; what it gives.

    It must be one that is safe to repeat: a node that is told to do what is done says so.
    """
    end = time.monotonic() + deadline_s
    while True:
        try:
            return order()
        except (LinkError, QueryError) as error:
            # What was split comes to be known in pieces: one that has none of the parts yet can't be told.
            known = error.code in again or PART_OF_SPLIT in error.message
            if not known or time.monotonic() >= end:
                raise
        time.sleep(0.2)
