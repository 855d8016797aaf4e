"""``medusa gateway`` as a process, killed again and again, behind a line that is cut: each row once."""

from __future__ import annotations

import contextlib
import random
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import medusa as md
from medusa.spark.exchange import caller as calling
from medusa.spark.options import options_from
from tests.gateway.fake_spark import DriverDiedError, Faults, Query, QueryFailedError
from tests.system.nodes import DEADLINE_S, RUN, first_line

pytestmark = pytest.mark.system

WAIT = "60s"
ROWS = 36


class Line:
    """A port that leads to another one, until it is cut: then all that goes over it ends, and begins anew."""

    def __init__(self, to: int) -> None:
        self._to = to
        self._ends: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"tcp://127.0.0.1:{self._listener.getsockname()[1]}"
        self._threads: list[threading.Thread] = []
        self._begin(self._accept)

    def _begin(self, work: Callable[..., None], *arguments: socket.socket) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                try:
                    far = socket.create_connection(("127.0.0.1", self._to))
                except OSError:
                    near.close()
                    continue
                self._ends += [near, far]
                for one, other in ((near, far), (far, near)):
                    self._begin(self._carry, one, other)

    def _carry(self, one: socket.socket, other: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := one.recv(1 << 16):
                other.sendall(data)
        for each in (one, other):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def cut(self) -> None:
        for each in list(self._ends):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._threads[0].join()
        self.cut()
        for thread in self._threads:
            thread.join()
        for each in (self._listener, *self._ends):
            each.close()


class Process:
    """The gateway, started at the same port each time."""

    def __init__(self, folder: Path, node: str) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self._folder = folder
        (folder / "gateway.toml").write_text(
            f'node = "{node}"\nlisten = "tcp://127.0.0.1:{self.port}"\ndata = "gateway"\n'
        )
        self.start()

    def start(self) -> None:
        with open(self._folder / "gateway.log", "a") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", RUN, "gateway", str(self._folder / "gateway.toml")],
                stdout=subprocess.PIPE,
                stderr=log,
                stdin=subprocess.DEVNULL,
                text=True,
            )
        line = first_line(self._process)
        assert line == f"gateway spark listening on tcp://127.0.0.1:{self.port}", self.log()

    def log(self) -> str:
        return (self._folder / "gateway.log").read_text()

    def end(self, how: int) -> int:
        self._process.send_signal(how)
        code = self._process.wait(DEADLINE_S)
        assert self._process.stdout is not None
        self._process.stdout.close()
        return code


def query(name: str) -> md.Query:
    q = md.Query(name)
    q.sink("out", q.source("rows", {"v": "int64"}, time=None))
    return q


class Copy(Query):
    """The query of the fake Spark, over sockets."""

    def __init__(self, address: str, faults: Faults) -> None:
        super().__init__(faults, rows=9)
        plain = {"endpoint": address, "timeout": WAIT}
        self.options = options_from({**plain, "stream": "a.out", "bytesPerPartition": "1"})
        self.to = options_from({**plain, "stream": "b.rows"})

    def through(self, rows: int) -> bool:
        """All rows were copied, as far as Spark knows."""
        last = max(self.offsets, default=-1)
        return last in self.commits and self.offsets[last][1]["row"] == rows


class Trouble(Faults):
    """Faults of the driver and its tasks; and now and then, while it goes on, the gateway is killed, or the
    line is cut."""

    def __init__(self, chance: random.Random, process: Process, line: Line) -> None:
        super().__init__()
        self._chance, self._process, self._line = chance, process, line
        self._thread = threading.Thread()
        self.kills = self.cuts = 0

    def again(self) -> Trouble:
        """Another life of the driver."""
        self.at = self.steps + self._chance.randrange(12)
        self.kind = self._chance.choice(["die", "task", "tasks", "commit"])
        return self

    def step(self, *kinds: str) -> bool:
        if self.steps % 5 == 2 and not self._thread.is_alive():
            arguments = (self.kills <= self.cuts, 0.05 * self._chance.random())
            self._thread = threading.Thread(target=self._strike, args=arguments)
            self._thread.start()
        return super().step(*kinds)

    def _strike(self, kills: bool, after_s: float) -> None:
        threading.Event().wait(after_s)
        if kills:
            self._process.end(signal.SIGKILL)
            self._process.start()
            self.kills += 1
        else:
            self._line.cut()
            self.cuts += 1

    def join(self) -> None:
        if self._thread.ident is not None:
            self._thread.join()


def test_gateway_and_driver_are_killed_and_the_line_is_cut(tmp_path, monkeypatch):
    monkeypatch.setattr(calling, "_callers", {})
    settings = {"name": "n", "listen": f"ipc://{tmp_path}/n", "data": f"{tmp_path}/n.data"}
    settings["limits"] = {"checkpoint_every": "50ms"}
    with md.node(settings) as node, node.connect(timeout=WAIT) as fed:
        for name in ("a", "b"):
            fed.deploy(query(name))
        fed.publish("a.rows", {"v": list(range(ROWS))})
        fed.flush(WAIT)
        process = Process(tmp_path, node.address)
        line = Line(process.port)
        trouble = Trouble(random.Random(7), process, line)
        of = Copy(line.address, trouble)
        try:
            while not of.through(ROWS):
                trouble.again()
                with contextlib.suppress(DriverDiedError, QueryFailedError):
                    of.run()
            trouble.join()
            # What was published is the gateway's until the node has it: it is ended once all is there.
            found: list[int] = []
            with fed.subscribe("b.out", from_="oldest") as trains:
                while len(found) < ROWS:
                    found += trains.next(WAIT).batch["v"].to_pylist()
        finally:
            trouble.join()
            code = process.end(signal.SIGTERM)
            line.close()
            for each in calling._callers.values():
                each.close()
        assert code == 0
        assert trouble.kills
        assert trouble.cuts
        assert found == [2 * n for n in range(ROWS)], process.log()
