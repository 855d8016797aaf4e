"""A network between namespaces, in user space: delay, loss, repetition, rates, cuts in one direction.

``python -m medusa.apps.workloads.network.router SEED NAME=ADDRESS ...`` opens a TUN device in each namespace
and carries packets between them. Orders come on standard input, one JSON object a line; each is answered by
a line when it is in force. The kernel here has no netem, and one-way cuts need more than a blackhole route.
"""

from __future__ import annotations

import ctypes
import fcntl
import heapq
import json
import os
import random
import selectors
import socket
import struct
import sys
import threading
import time
from dataclasses import dataclass
from typing import Any

__all__ = ["PacketRouter"]

TUNSETIFF = 0x400454CA
IFF_TUN, IFF_NO_PI = 0x0001, 0x1000
CLONE_NEWNET = 0x40000000
PACKET_BYTES_MAX = 65536
QUEUED_MAX = 20_000
"""Packets under way between two hosts: more are dropped, as a full router does."""


def open_tun(namespace: str) -> int:
    """A TUN device ``tun0`` in this namespace; the caller gives it an address."""
    opened: list[int | OSError] = []

    def work() -> None:
        # A namespace is a thread's own: this thread ends, the others stay where they are.
        libc = ctypes.CDLL(None, use_errno=True)
        try:
            handle = os.open(f"/run/netns/{namespace}", os.O_RDONLY)
            if libc.setns(handle, CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), "setns")
            os.close(handle)
            device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
            fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", b"tun0", IFF_TUN | IFF_NO_PI))
            opened.append(device)
        except OSError as error:
            opened.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    if isinstance(opened[0], OSError):
        raise opened[0]
    return opened[0]


@dataclass(slots=True)
class PacketWay:
    """One direction between two hosts. Chances are in thousandths of packets."""

    cut: bool = False
    delay_s: float = 0.0
    jitter_s: float = 0.0
    loss: int = 0
    repeat: int = 0
    bytes_per_s: int = 0
    busy_until: float = 0.0
    arrives_at: float = 0.0
    queued: int = 0


@dataclass(slots=True)
class PacketFlow:
    """What one side of a TCP connection sends. Chances are in thousandths of packets."""

    cut: bool = False
    loss: int = 0
    bytes: int = 0


class PacketRouter:
    """Carries packets by their destination until standard input ends."""

    def __init__(self, seed: int, hosts: dict[str, str]) -> None:
        self._random = random.Random(seed)
        self._devices = {name: open_tun(name) for name in hosts}
        self._by_address = {socket.inet_aton(address): name for name, address in hosts.items()}
        self._ways = {(a, b): PacketWay() for a in hosts for b in hosts if a != b}
        self._flying: list[tuple[float, int, tuple[str, str], bytes]] = []
        self._number = 0
        self._flows: dict[tuple[str, str, int, int], PacketFlow] = {}
        self.counts = {"carried": 0, "dropped": 0, "repeated": 0}

    def order(self, order: dict[str, Any]) -> object:
        """``{"ways": [[from, to], ...], "cut": bool, "delay_s": ..., ...}``, or ``{"flows": [[from, to, port,
        port], ...], "cut": bool, "loss": ...}``: the counts; ``{"list": [from, to]}``: the flows there."""
        if "list" in order:
            return [
                [*name, flow.bytes] for name, flow in self._flows.items() if list(name[:2]) == order["list"]
            ]
        for name in order.get("flows", []):
            flow = self._flows[tuple(name)]
            flow.cut, flow.loss = order.get("cut", flow.cut), order.get("loss", flow.loss)
        for source, target in order.get("ways", []):
            way = self._ways[source, target]
            for name in order.keys() - {"ways"}:
                if not hasattr(way, name):
                    raise ValueError(f"a way has no {name!r}")
                setattr(way, name, order[name])
        if order.get("cut") and "ways" in order:
            gone = {tuple(pair) for pair in order["ways"]}
            kept = [item for item in self._flying if item[2] not in gone]
            self.counts["dropped"] += len(self._flying) - len(kept)
            for pair in gone:
                self._ways[pair].queued = 0
            self._flying = kept
            heapq.heapify(self._flying)
        return self.counts

    def run(self) -> None:
        with selectors.DefaultSelector() as selector:
            for name, device in self._devices.items():
                selector.register(device, selectors.EVENT_READ, name)
            selector.register(sys.stdin.fileno(), selectors.EVENT_READ, "")
            print("ready", flush=True)
            pending = b""
            while True:
                wait = None
                if self._flying:
                    wait = max(self._flying[0][0] - time.monotonic(), 0)
                for key, _ in selector.select(wait):
                    if key.data:
                        self._read(key.data)
                        continue
                    data = os.read(sys.stdin.fileno(), 65536)
                    if not data:
                        return
                    *lines, pending = (pending + data).split(b"\n")
                    for line in lines:
                        print(json.dumps(self.order(json.loads(line))), flush=True)
                self._land()

    def _read(self, source: str) -> None:
        for _ in range(64):
            try:
                packet = os.read(self._devices[source], PACKET_BYTES_MAX)
            except BlockingIOError:
                return
            target = self._by_address.get(packet[16:20]) if packet[0] >> 4 == 4 else None
            if target is not None and target != source:
                self._carry(source, target, packet)

    def _carry(self, source: str, target: str, packet: bytes) -> None:
        way = self._ways[source, target]
        if packet[9] == socket.IPPROTO_TCP and self._flow_drops(source, target, packet):
            self.counts["dropped"] += 1
            return
        if way.cut or self._random.randrange(1000) < way.loss or way.queued >= QUEUED_MAX:
            self.counts["dropped"] += 1
            return
        if not (way.delay_s or way.jitter_s or way.bytes_per_s or way.repeat):
            self._write(target, packet)
            return
        now = time.monotonic()
        at = now + way.delay_s + self._random.random() * way.jitter_s
        if way.bytes_per_s:
            way.busy_until = max(way.busy_until, now) + len(packet) / way.bytes_per_s
            at = max(at, way.busy_until)
        # Jitter doesn't reorder: TCP takes that for loss, and slows down for another reason than delay.
        at = way.arrives_at = max(at, way.arrives_at)
        copies = 2 if self._random.randrange(1000) < way.repeat else 1
        self.counts["repeated"] += copies - 1
        for _ in range(copies):
            self._number += 1
            way.queued += 1
            heapq.heappush(self._flying, (at, self._number, (source, target), packet))

    def _flow_drops(self, source: str, target: str, packet: bytes) -> bool:
        begin = (packet[0] & 15) * 4  # of the TCP header
        ports = struct.unpack_from("!HH", packet, begin)
        flow = self._flows.setdefault((source, target, *ports), PacketFlow())
        flow.bytes += len(packet)
        return flow.cut or self._random.randrange(1000) < flow.loss

    def _land(self) -> None:
        now = time.monotonic()
        while self._flying and self._flying[0][0] <= now:
            _, _, pair, packet = heapq.heappop(self._flying)
            self._ways[pair].queued -= 1
            self._write(pair[1], packet)

    def _write(self, target: str, packet: bytes) -> None:
        try:
            os.write(self._devices[target], packet)
            self.counts["carried"] += 1
        except OSError:
            self.counts["dropped"] += 1


def main() -> None:
    hosts = dict(argument.split("=") for argument in sys.argv[2:])
    PacketRouter(int(sys.argv[1]), hosts).run()


if __name__ == "__main__":
    main()
