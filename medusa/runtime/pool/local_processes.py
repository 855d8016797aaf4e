"""Nodes as processes of this machine: each is ``medusa node CONFIG``, with a log beside its configuration."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from medusa.errors import ConfigError
from medusa.nodes.pool.provider import ProvidedNode

__all__ = ["LocalProcesses"]

LISTENS = "listening on"
"""The line that a node says once it does."""

WORDS_MAX = 400


@dataclass(slots=True, kw_only=True)
class _Process:
    """``said_at``: where in the log its words begin; ``listens``: it was seen to."""

    process: subprocess.Popen[bytes]
    said_at: int
    listens: bool = False
    stopping: bool = False


class LocalProcesses:
    """A ``NodeProvider``.

    A node has a session of its own: Ctrl-C is ours alone, and it outlives us. It is ended by SIGTERM, after
    which it writes its last checkpoint, and never by force.

    Args:
        configs: node -> its configuration, a TOML file.

    Raises:
        ConfigError: one isn't there.
    """

    def __init__(self, configs: Mapping[str, Path]) -> None:
        self._configs = dict(configs)
        self._processes: dict[str, _Process] = {}
        for name, path in self._configs.items():
            if not path.is_file():
                text = f"node {name}: there is no file {path}"
                raise ConfigError(text, hint=f'[nodes] {name} = "CONFIG.toml"', code="config.file")

    def log(self, node: str) -> Path:
        """Where a node writes what it says."""
        return self._configs[node].with_suffix(".log")

    def acquire(self, now_us: int, node: str) -> None:
        """As ``NodeProvider.acquire``."""
        path = self.log(node)
        with path.open("ab") as log:
            said_at = log.tell()
            process = subprocess.Popen(
                [sys.executable, "-m", "medusa", "node", str(self._configs[node])],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._processes[node] = _Process(process=process, said_at=said_at)

    def release(self, now_us: int, node: str) -> None:
        """As ``NodeProvider.release``."""
        if (found := self._processes.get(node)) is not None and not found.stopping:
            found.stopping = True
            found.process.terminate()

    def nodes(self, now_us: int) -> Mapping[str, ProvidedNode]:
        """As ``NodeProvider.nodes``."""
        return {name: self._state(name, each) for name, each in list(self._processes.items())}

    def _state(self, name: str, of: _Process) -> ProvidedNode:
        code = of.process.poll()
        if code is None:
            if of.stopping:
                return ProvidedNode(state="stopping")
            of.listens = of.listens or LISTENS in self._said(name, of)
            return ProvidedNode(state="up" if of.listens else "starting")
        if of.stopping and not code:
            del self._processes[name]
            return ProvidedNode()
        lines = self._said(name, of).strip().splitlines()
        words = lines[-1][:WORDS_MAX] if lines else "it said nothing"
        return ProvidedNode(state="failed", why=f"it ended with {code}: {words}; its log: {self.log(name)}")

    def _said(self, name: str, of: _Process) -> str:
        with self.log(name).open("rb") as log:
            log.seek(of.said_at)
            return log.read().decode(errors="replace")
