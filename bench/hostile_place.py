"""Nodes with keys, in processes of their own, and clients that they let in."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import zmq

import medusa as md
from medusa.runtime.keys.key_files import CurveKey, ParticipantKey, read_curve_key, read_public, write_key

RUN = "import sys; from medusa.cli.main import main; sys.argv[0] = 'medusa'; main()"
CLIENTS = {
    "nobody": (),
    "deployer": ('deploy = ["*"]',),
    "watcher": ("status = true",),
    "reader": ('subscribe = ["*"]',),
    "writer": ('publish = ["*"]',),
    "maker": ("status = true", 'deploy = ["*"]', 'publish = ["*"]', 'subscribe = ["*"]'),
}
"""What each may; ``maker`` is the honest one."""


class Place:
    """Nodes a and b of alice, each with a key; bob's node e is hostile, and maker the honest client."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.processes: dict[str, subprocess.Popen[str]] = {}
        for node in ("a", "b", "e"):
            write_key(folder / f"{node}.key", "node", CurveKey.new())
        for client in CLIENTS:
            write_key(folder / f"{client}.key", "client", CurveKey.new())
        for participant in ("alice", "bob"):
            write_key(folder / f"{participant}.key", "participant", ParticipantKey.new())
        self.ports = {node: _free_port() for node in ("a", "b", "e")}

    def address(self, node: str) -> str:
        return f"tcp://127.0.0.1:{self.ports[node]}"

    def public(self, name: str) -> str:
        return read_public(self.folder / f"{name}.pub")

    def key(self, name: str) -> CurveKey:
        return read_curve_key(self.folder / f"{name}.key")

    def start(self, node: str) -> None:
        """Start it and wait until it listens."""
        lines = [f'name = "{node}"', f'listen = "{self.address(node)}"', f'data = "{node}.data"']
        lines += ['participant = "alice"', 'federation = "f"', "[keys]", f'node = "{node}.key"']
        for name in ("alice", "bob"):
            lines += [f"[participants.{name}]", f'key = "{self.public(name)}"']
        for other, owner in (("a", "alice"), ("b", "alice"), ("e", "bob")):
            if other != node:
                lines += [f"[peers.{other}]", f'address = "{self.address(other)}"']
                lines += [f'participant = "{owner}"', f'key = "{self.public(other)}"']
        for client, rules in CLIENTS.items():
            lines += [f"[clients.{client}]", f'key = "{self.public(client)}"', *rules]
        lines += ["[offers.bob]", 'boxes = ["filter"]']
        config = self.folder / f"{node}.toml"
        config.write_text("\n".join(lines) + "\n")
        with open(self.folder / f"{node}.log", "a") as log:
            command = [sys.executable, "-c", RUN, "node", str(config)]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        self.processes[node] = process
        assert process.stdout is not None
        process.stdout.readline()

    def connect(self, name: str = "maker", node: str = "a") -> md.Federation:
        keys = {"key": self.folder / f"{name}.key", "server_key": self.folder / f"{node}.pub"}
        return md.connect(self.address(node), timeout="60s", **keys)

    def log(self, node: str) -> str:
        return (self.folder / f"{node}.log").read_text()

    def memory_mb(self, what: str = "VmRSS") -> float:
        """Of node a."""
        text = Path(f"/proc/{self.processes['a'].pid}/status").read_text()
        line = next(each for each in text.splitlines() if each.startswith(what))
        return int(line.split()[1]) / 1024

    def close(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()


def _free_port() -> int:
    with zmq.Context() as context, context.socket(zmq.ROUTER) as each:
        return each.bind_to_random_port("tcp://127.0.0.1")
