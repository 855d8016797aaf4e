"""A node and a gateway as processes that can be killed, and lines to them that can be cut, where the test
says so."""

from __future__ import annotations

import contextlib
import random
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

import medusa as md
from medusa.spark.data_source_reader import StreamFollower
from medusa.spark.options import options_from
from tests.gateway.here import timed
from tests.system.nodes import DEADLINE_S, RUN, Nodes, first_line, until

__all__ = ["EXPECTED", "ROWS", "WAIT", "GatewayProcess", "Line", "World", "all_there"]

WAIT = "60s"
ROWS = 160
EXPECTED = [2 * number for number in range(ROWS)]
PIECES, WIRE_PIECES = 160, 300
"""About as many as there are on a line to the gateway, and of the gateway to the node."""


class Line:
    """A port that leads to a socket, until it is cut: then all that goes over it ends, and begins anew.

    Attributes:
        pieces: how many were carried, in both directions; the next one has this number.
        strikes: what is done once, instead of carrying a piece or right behind it: piece -> (behind, what).
    """

    def __init__(self, to: Path) -> None:
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
                far = socket.socket(socket.AF_UNIX)
                try:
                    far.connect(str(self._to))
                except OSError:
                    near.close()
                    far.close()
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


class GatewayProcess:
    """``medusa gateway``, started at the same socket each time."""

    def __init__(self, folder: Path, node: str) -> None:
        self.socket = folder / "g"
        self._folder = folder
        (folder / "gateway.toml").write_text(
            f'node = "{node}"\nlisten = "ipc://{self.socket}"\ndata = "gateway"\n'
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
        assert line == f"gateway spark listening on ipc://{self.socket}", self.log()

    def log(self) -> str:
        return (self._folder / "gateway.log").read_text()

    def end(self, how: int) -> int:
        self._process.send_signal(how)
        code = self._process.wait(DEADLINE_S)
        assert self._process.stdout is not None
        self._process.stdout.close()
        return code


class World:
    """Queries ``a``, whose sink has rows 0 to ``ROWS``, and ``b``, without rows; a node, a gateway, lines.

    Args:
        readers: who read ``a.out``.

    Attributes:
        line: to the gateway: where Spark calls.
        wire: of the gateway to the node.
        came: what was killed or cut so far.
    """

    def __init__(self, folder: Path, *readers: str) -> None:
        self._folder = folder
        self._ends = contextlib.ExitStack()
        self.lock = threading.Lock()
        self.came: list[str] = []
        self.nodes = Nodes(folder, ["n"], limits='checkpoint_every = "50ms"')
        self._ends.callback(self.nodes.close)
        self.address = self.nodes.addresses["n"]
        self.nodes.start("n")
        with md.connect(self.address, timeout=WAIT) as fed:
            for name in ("a", "b"):
                fed.deploy(timed(name, slack="1h"))
        self.wire = Line(folder / "n")
        self._ends.callback(self.wire.close)
        self.gateway: GatewayProcess | None = GatewayProcess(folder, self.wire.address)
        self._ends.callback(self._end_gateway)
        for (
            reader
        ) in readers:  # Before there are rows: what one has taken isn't kept for those who come later.
            all_there(f"ipc://{self.gateway.socket}", reader, 0)
        with md.connect(self.address, timeout=WAIT) as fed:
            fed.publish("a.rows", {"ts": list(range(ROWS)), "v": list(range(ROWS))})
            fed.flush(WAIT)
        self.line = Line(self.gateway.socket)
        self._ends.callback(self.line.close)

    def _end_gateway(self) -> int | None:
        made, self.gateway = self.gateway, None
        return None if made is None else made.end(signal.SIGTERM)

    def draw(self, chance: random.Random, kinds: Iterable[str], **more: Callable[[], None]) -> str:
        """Have each of these come once: ``gateway``, ``node`` (killed and started again), ``line``, ``wire``
        (cut), or one of ``more``; at which pieces."""
        does = {"gateway": self._kill_gateway, "node": self._kill_node, "line": self.line.cut} | more
        said = []
        for kind in kinds:
            if kind == "wire":
                line, what, most = self.wire, self.wire.cut, WIRE_PIECES
            else:
                line, what, most = self.line, does[kind], PIECES
            at, behind = line.pieces + chance.randrange(2, most), chance.random() < 0.5
            while at in line.strikes:
                at += 1
            line.strikes[at] = (behind, self._once(kind, what))
            said.append(f"{kind} {'behind' if behind else 'instead of'} piece {at}")
        return ", ".join(said)

    def _once(self, kind: str, does: Callable[[], None]) -> Callable[[], None]:
        def strike() -> None:
            with self.lock:
                does()
                self.came.append(kind)

        return strike

    def _kill_gateway(self) -> None:
        assert self.gateway is not None
        self.gateway.end(signal.SIGKILL)
        self.gateway.start()

    def _kill_node(self) -> None:
        self.nodes.kill("n")
        self.nodes.start("n")

    def disarm(self) -> None:
        """Nothing fails any more; what is failing has ended."""
        self.line.strikes.clear()
        self.wire.strikes.clear()
        with self.lock:
            pass

    def copied(self) -> list[int]:
        """What is in the stream of ``b`` once it has all that the gateway published."""
        self.disarm()
        assert self._end_gateway() == 0
        with (
            md.spark.gateway(self.address, self._folder / "gateway") as gateway,
            md.connect(self.address, timeout=WAIT) as fed,
        ):
            gateway.flush(WAIT)
            status = gateway.status()
            assert status["staged_bytes"] == 0
            count = status["sources"]["b.rows"]["published"]
            found: list[int] = []
            with fed.subscribe("b.out", from_="oldest") as trains:
                while len(found) < count:
                    found += trains.next(WAIT).batch["v"].to_pylist()
        return found

    def close(self) -> None:
        self.disarm()
        self._ends.close()


def all_there(endpoint: str, reader: str, rows: int) -> None:
    """So many rows have come to the gateway: AvailableNow ends with what there is."""
    options = {"endpoint": endpoint, "stream": "a.out", "reader": reader}
    follower = StreamFollower(options_from(options))
    follower.columns()
    until(lambda: follower.state()[1] >= rows, what=f"{rows} rows are at the gateway")
