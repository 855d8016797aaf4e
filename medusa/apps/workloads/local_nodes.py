"""Node processes on this machine, for demonstrations: started together, gone together.

Each node is ``medusa node CONFIG --with-parent``: it ends when its standard input does, so it
doesn't outlive us even if we are killed with -9. It has its own session, so Ctrl-C reaches us
alone and we stop it in order.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Self

from medusa.apps.workloads.interruption import Interruption
from medusa.errors import LinkError

__all__ = ["START_TIMEOUT_S", "LocalNodes"]

ATTEMPTS = 3
IN_USE = os.strerror(errno.EADDRINUSE)
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 5.0
LOOK_EVERY_S = 0.1


@dataclass(frozen=True, slots=True)
class _Node:
    process: subprocess.Popen[bytes]
    output: IO[bytes]
    log: Path


class LocalNodes:
    """A context manager: inside it the nodes run and know each other.

    Args:
        names: of the nodes.
        folder: for their configurations, state and logs; the caller removes it.
        interruption: the caller's; in the main thread none comes between starting a node and noting it,
            and none keeps nodes from being stopped.
        later: names of nodes that ``start`` starts.
        config: gives the TOML of a node; relative paths in it are relative to ``folder``. None: nodes that
            know each other, without keys.
        addresses: node -> where it listens; None: at free ports of this machine.
        words: gives what comes before the command that starts a node, such as what puts it elsewhere.
        command: gives the command of ``medusa`` that runs a node.
        patience_s: until all listen.

    Attributes:
        addresses: node -> where it listens, ``tcp://127.0.0.1:port`` if nothing else was given.
        pids: node -> its process.
    """

    def __init__(
        self,
        names: Sequence[str],
        folder: Path,
        interruption: Interruption | None = None,
        *,
        later: Sequence[str] = (),
        config: Callable[[str, Mapping[str, str]], str] | None = None,
        addresses: Mapping[str, str] | None = None,
        words: Callable[[str], Sequence[str]] = lambda name: (),
        command: Callable[[str], str] = lambda name: "node",
        patience_s: float = START_TIMEOUT_S,
    ) -> None:
        self.addresses: dict[str, str] = {}
        self._given = addresses
        self._words, self._command, self._patience_s = words, command, patience_s
        self._names = tuple(names)
        self._later = tuple(later)
        self._config = config or self._without_keys
        self._folder = folder
        self._nodes: dict[str, _Node] = {}
        self._interruption = interruption or Interruption()

    @property
    def pids(self) -> Mapping[str, int]:
        nodes = self._nodes.copy()  # Another thread may ask while one is started.
        return {name: node.process.pid for name, node in nodes.items()}

    def __enter__(self) -> Self:
        with self._interruption:
            for left in reversed(range(ATTEMPTS)):
                try:
                    self._start_all()
                    break
                except BaseException as error:
                    self._stop()
                    # Between finding a free port and listening at it, another process may take it.
                    if not (left and isinstance(error, LinkError) and IN_USE in error.message):
                        raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        with self._interruption:
            self._stop()

    def log(self, name: str) -> str:
        """What the node has written so far."""
        return self._nodes[name].log.read_text(errors="replace")

    def start(self, name: str) -> None:
        """Start a node of ``later``, or one that was stopped, and wait until it listens.

        Raises:
            LinkError: it doesn't.
        """
        with self._interruption:
            self._start(name)
            self._wait(name, time.monotonic() + self._patience_s)

    def stop(self, name: str) -> int:
        """Tell a node to end, and wait until it has; its exit code."""
        with self._interruption:
            node = self._nodes.pop(name)
            _end([node], self._interruption)
            return node.process.returncode

    def _start_all(self) -> None:
        names = (*self._names, *self._later)
        self.addresses = dict(self._given or zip(names, _free_addresses(len(names)), strict=True))
        for name in self._names:
            self._interruption.check()
            self._start(name)
        deadline = time.monotonic() + self._patience_s
        for name in self._names:
            self._wait(name, deadline)
        self._interruption.check()

    def _start(self, name: str) -> None:
        config, log = self._folder / f"{name}.toml", self._folder / f"{name}.log"
        config.write_text(self._config(name, self.addresses))
        output = log.open("wb")
        command = [*self._words(name), sys.executable, "-m", "medusa.cli.main", self._command(name)]
        command += [str(config), "--with-parent"]
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=output, stderr=output, start_new_session=True
            )
        except BaseException:
            output.close()
            raise
        self._nodes[name] = _Node(process, output, log)

    def _without_keys(self, name: str, addresses: Mapping[str, str]) -> str:
        """TOML; JSON's quoting of text is TOML's too."""
        peers = [f"{peer} = {json.dumps(address)}" for peer, address in addresses.items() if peer != name]
        data = json.dumps(str(self._folder / name))
        lines = [
            f'name = "{name}"',
            f'listen = "{addresses[name]}"',
            f"data = {data}",
            "",
            "[peers]",
            *peers,
        ]
        return "\n".join(lines) + "\n"

    def _wait(self, name: str, deadline: float) -> None:
        """Until the node listens."""
        node = self._nodes[name]
        while b"listening" not in node.log.read_bytes():
            if node.process.poll() is not None:
                message, hint = self._last_words(name)
                raise LinkError(
                    f"node {name!r} ended with {node.process.returncode} before it listened: {message}",
                    hint=hint,
                    code="link.start",
                )
            if time.monotonic() > deadline:
                raise LinkError(
                    f"node {name!r} doesn't listen at {self.addresses[name]} after {self._patience_s:.0f} s",
                    hint=f"its log: {node.log}",
                    code="link.start",
                )
            self._interruption.check()
            time.sleep(0.02)

    def _last_words(self, name: str) -> tuple[str, str]:
        """What the node said before it ended: error and hint, else its last line."""
        lines = self.log(name).strip().splitlines() or ["it wrote nothing"]
        said = {kind: text for kind, _, text in (line.partition(": ") for line in lines)}
        return said.get("error", lines[-1]), said.get("hint", "")

    def _stop(self) -> None:
        """End all. Never raises, never leaves one: called where interruptions wait."""
        _end(list(self._nodes.values()), self._interruption)


def _end(nodes: Sequence[_Node], interruption: Interruption) -> None:
    """End nodes: first by asking, then by force, which another interruption hastens."""
    asked = interruption.asked
    for node in nodes:
        node.process.terminate()
    deadline = time.monotonic() + STOP_TIMEOUT_S
    for node in nodes:
        while node.process.poll() is None:
            if interruption.asked > asked or time.monotonic() > deadline:
                node.process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                node.process.wait(LOOK_EVERY_S)
        if node.process.stdin is not None:
            node.process.stdin.close()
        node.output.close()


def _free_addresses(count: int) -> list[str]:
    """Ports that were free a moment ago; all held at once, so that they differ."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for held in sockets:
            held.bind(("127.0.0.1", 0))
        return [f"tcp://127.0.0.1:{held.getsockname()[1]}" for held in sockets]
