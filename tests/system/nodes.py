"""Node processes for system tests: started, killed, started again, and gone at the end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

DEADLINE_S = 60.0

RUN = "import sys; from medusa.cli import main; sys.argv[0] = 'medusa'; main()"


class Nodes:
    """Nodes that all know each other, at ipc addresses in one folder."""

    def __init__(self, folder: Path, names: list[str], *, limits: str = "") -> None:
        self.folder = folder
        self.names = names
        self.limits = limits
        self.addresses = {name: f"ipc://{folder}/{name}" for name in names}
        self.processes: dict[str, subprocess.Popen[str]] = {}
        for name in names:
            peers = "".join(f'{o} = "{self.addresses[o]}"\n' for o in names if o != name)
            self.config(name).write_text(
                f'name = "{name}"\nlisten = "{self.addresses[name]}"\ndata = "{name}.data"\n'
                f"[peers]\n{peers}[limits]\n{limits}\n"
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
            line = first_line(self.processes[name])
            assert line == f"node {name} listening on {self.addresses[name]}", (line, self.log(name))

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


def first_line(process: subprocess.Popen[str]) -> str:
    """The first line of standard output, or what is there when the process ends or time is over."""
    timer = threading.Timer(DEADLINE_S, process.kill)
    timer.start()
    try:
        return process.stdout.readline().rstrip("\n")
    finally:
        timer.cancel()


def run_to_end(*arguments: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """``medusa ARGUMENTS``, to its end."""
    return subprocess.run(
        [sys.executable, "-c", RUN, *arguments],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        env={**os.environ, **(env or {})},
        check=False,
    )


def until(condition, *, what: str = "condition", deadline_s: float = DEADLINE_S):
    """Ask again and again until the answer is true; the answer."""
    end = time.monotonic() + deadline_s
    while not (answer := condition()):
        assert time.monotonic() < end, f"not in time: {what}"
        time.sleep(0.02)
    return answer
