"""Hosts in network namespaces with a router between them."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shutil
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from medusa.apps.workloads.network import router
from medusa.errors import LinkError

__all__ = ["Net", "why_not"]

DEADLINE_S = 60.0
ROOT = Path(__file__).resolve().parents[4]
NEWNET = 0x40000000


def why_not() -> str:
    """Why there can be no such network here; empty where there can."""
    if os.geteuid() != 0:
        return "needs root: network namespaces and a TUN device"
    if not os.path.exists("/dev/net/tun"):
        return "needs /dev/net/tun"
    if shutil.which("ip") is None:
        return "needs the command ip (Debian: apt install iproute2)"
    return ""


class Net:
    """Hosts by name, each at an address of its own, all a hop from each other.

    Raises:
        LinkError: there can be no such network here, though ``why_not`` finds nothing: rights are missing.
    """

    def __init__(self, names: Iterable[str], *, seed: int = 0) -> None:
        self.names = list(names)
        self._tag = uuid.uuid4().hex[:6]
        self.addresses = {name: f"10.77.0.{number}" for number, name in enumerate(self.names, start=1)}
        self._made: list[str] = []
        self._router: subprocess.Popen[str] | None = None
        try:
            for name in self.names:
                space = self.space(name)
                _ip("netns", "add", space)
                self._made.append(space)
                _ip("-n", space, "link", "set", "lo", "up")
            self._router = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    router.__name__,
                    str(seed),
                    *(f"{self.space(name)}={address}" for name, address in self.addresses.items()),
                ],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                start_new_session=True,  # Ctrl-C is for who made it: then it is closed in order.
            )
            if self._answer() != "ready":
                raise LinkError("the router between the namespaces doesn't start", code="link.network")
            for name, address in self.addresses.items():
                _ip("-n", self.space(name), "addr", "add", f"{address}/24", "dev", "tun0")
                _ip("-n", self.space(name), "link", "set", "tun0", "up", "mtu", "9000", "txqueuelen", "10000")
        except BaseException:
            self.close()
            raise

    def space(self, name: str) -> str:
        """The namespace of a host."""
        return f"md{self._tag}-{name}"

    # --- what the network does --------------------------------------------------------------------

    def cut(self, *ways: tuple[str, str]) -> None:
        """Nothing passes in these directions any more; what is under way is lost."""
        self._order(ways, cut=True)

    def heal(self, *ways: tuple[str, str]) -> None:
        """Packets pass again in these directions; without any, in all."""
        self._order(ways or self.all_ways(), cut=False)

    def set(self, *ways: tuple[str, str], **faults: float) -> None:
        """Faults of these directions (all without any): ``delay_s``, ``jitter_s``, ``loss`` and
        ``repeat`` (thousandths of packets), ``bytes_per_s``."""
        self._order(ways or self.all_ways(), **faults)

    def counts(self) -> dict[str, int]:
        """Packets carried, dropped, repeated."""
        return self._order(())

    def flows(self, a: str, b: str) -> dict[tuple[int, int], int]:
        """What the connections between two hosts have sent from ``a`` to ``b``: bytes by both ports."""
        listed = self._ask({"list": [self.space(a), self.space(b)]})
        return {(port_a, port_b): count for _, _, port_a, port_b, count in listed}

    def set_flow(self, a: str, b: str, ports: tuple[int, int], **faults: float) -> None:
        """Faults of one TCP connection, in both directions: ``cut``, ``loss`` (thousandths of packets)."""
        there = [self.space(a), self.space(b), *ports]
        back = [self.space(b), self.space(a), *reversed(ports)]
        self._ask({"flows": [there, back], **faults})

    def all_ways(self) -> tuple[tuple[str, str], ...]:
        return tuple((a, b) for a in self.names for b in self.names if a != b)

    def between(self, a: str, b: str) -> tuple[tuple[str, str], ...]:
        """Both directions."""
        return (a, b), (b, a)

    def _order(self, ways: Iterable[tuple[str, str]], **what: Any) -> dict[str, int]:
        pairs = [[self.space(a), self.space(b)] for a, b in ways]
        counts: dict[str, int] = self._ask({"ways": pairs, **what})
        return counts

    def _ask(self, order: dict[str, Any]) -> Any:
        carrier = self._router
        if carrier is None or carrier.stdin is None:
            raise LinkError("the network is closed", code="link.network")
        carrier.stdin.write(json.dumps(order) + "\n")
        carrier.stdin.flush()
        return json.loads(self._answer())

    def _answer(self) -> str:
        carrier = self._router
        if carrier is None or carrier.stdout is None:
            return ""
        timer = threading.Timer(DEADLINE_S, carrier.kill)
        timer.start()
        try:
            return carrier.stdout.readline().rstrip("\n")
        finally:
            timer.cancel()

    # --- who is on it -----------------------------------------------------------------------------

    def popen(self, name: str, *arguments: str, **options: Any) -> subprocess.Popen[str]:
        """Start a process on a host."""
        command = ["ip", "netns", "exec", self.space(name), *arguments]
        return subprocess.Popen(command, text=True, **options)

    @contextlib.contextmanager
    def on(self, name: str) -> Iterator[None]:
        """Sockets that this thread, and threads it starts, open inside are on that host."""
        libc = ctypes.CDLL(None, use_errno=True)
        home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        there = os.open(f"/run/netns/{self.space(name)}", os.O_RDONLY)
        try:
            _enter(libc, there)
            try:
                yield
            finally:
                _enter(libc, home)
        finally:
            os.close(home)
            os.close(there)

    def close(self) -> None:
        """Everything on it dies with it."""
        carrier, self._router = self._router, None
        if carrier is not None:
            if carrier.stdin is not None:
                carrier.stdin.close()
            carrier.wait(DEADLINE_S)
            if carrier.stdout is not None:
                carrier.stdout.close()
        for space in self._made:
            for pid in _ip("netns", "pids", space).split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), 9)
            _ip("netns", "delete", space)
        self._made.clear()

    def __enter__(self) -> Net:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _enter(libc: ctypes.CDLL, handle: int) -> None:
    if libc.setns(handle, NEWNET):
        raise OSError(ctypes.get_errno(), "setns")


def _ip(*arguments: str) -> str:
    """``ip ARGUMENTS``: what it prints."""
    command = ["ip", *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=DEADLINE_S, check=False, start_new_session=True
    )
    if done.returncode:
        raise LinkError(f"{' '.join(command)}: {done.stderr.strip()}", code="link.network")
    return done.stdout
