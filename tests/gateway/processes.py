"""A gateway as a process that can be killed, and a line to it that can be cut, where the test says so."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from tests.system.nodes import DEADLINE_S, RUN, first_line

__all__ = ["GatewayProcess", "Line", "free_port"]


class Line:
    """A port that leads to another one, until it is cut: then all that goes over it ends, and begins anew.

    Attributes:
        pieces: how many were carried, in both directions; the next one has this number.
        strikes: what is done once, instead of carrying a piece or right behind it: piece -> (behind, what).
    """

    def __init__(self, to: int) -> None:
        self._to = to
        self._ends: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"tcp://127.0.0.1:{self._listener.getsockname()[1]}"
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self.pieces = 0
        self.strikes: dict[int, tuple[bool, Callable[[], None]]] = {}
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
                with self._lock:
                    behind, strike = self.strikes.pop(self.pieces, (False, None))
                    self.pieces += 1
                if strike is not None and not behind:
                    strike()
                other.sendall(data)
                if strike is not None and behind:
                    strike()
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


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


class GatewayProcess:
    """``medusa gateway``, started at the same port each time."""

    def __init__(self, folder: Path, node: str) -> None:
        self.port = free_port()
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
