"""Question: when do several connections for the streams of a link pay, and does a stream better keep to one
(pinned) or go round over all (striped)?

    python -m bench.lanes [--rounds 3]

Data: frames of 64 KiB of one stream, and of four at once, from one process to another: a node's transport
and the minds of both ends, with credit, acknowledgements and retention; nothing is encoded or computed. On
loopback, plain and with CURVE; and, where root and /dev/net/tun are, over a line with delay and loss
(CURVE), which medusa.apps.workloads.network makes. Per run: bytes per second from the first frame to the
last, all streams together. Not shown: lines that several links share.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from statistics import median
from typing import Any

import zmq

from bench import machine, report

RESULTS = Path(__file__).parent / "results"
ROOT = Path(__file__).resolve().parent.parent
FRAME_BYTES = 64 << 10
BYTES, FAR_BYTES = 128 << 20, 16 << 20
DEADLINE_S = 120.0
ROUNDS = 3
SPREADS = [(1, False), (2, False), (4, False), (2, True), (4, True)]
STREAMS = (1, 4)
DELAY_S = 0.01
LINES: dict[str, dict[str, Any]] = {
    "loopback": {},
    "loopback, CURVE": {"keyed": True},
    "10 ms each way": {"keyed": True, "loss": 0},
    "10 ms each way, 0.5 % lost": {"keyed": True, "loss": 5},
}


# --- the two ends -------------------------------------------------------------------------------------


def _now_us() -> int:
    return time.monotonic_ns() // 1000


def send(plan: dict[str, Any]) -> None:
    """Put everything into the logs of the streams, out as far as credit goes."""
    from medusa.runtime.keys.key_files import CurveKey
    from medusa.runtime.transport.link_events import Arrival, LinkDown, LinkUp
    from medusa.runtime.transport.zeromq import Transport
    from medusa.wire.codec import decode_frame, encode_frame
    from medusa.wire.link.automaton import LinkEvent, LinkSettings
    from medusa.wire.link.lanes import way_of
    from medusa.wire.link.sender import Sender
    from medusa.wire.messages.links import Hello
    from medusa.wire.outbox import Outbox, Send

    keys: dict[str, Any] = {}
    if plan["keys"]:
        keys = {"key": CurveKey(plan["keys"]["send"]), "server_keys": {"to": (plan["keys"]["public"],)}}
    peers = {"to": plan["address"]}
    transport = Transport(listen=None, peers=peers, lanes=plan["lanes"], striped=plan["striped"], **keys)
    outbox = Outbox()
    settings = LinkSettings(retained_bytes_max=1 << 30)
    senders = {
        name: Sender(name, (), timed=False, outbox=outbox, settings=settings) for name in plan["streams"]
    }
    payload = memoryview(os.urandom(FRAME_BYTES))
    for sender in senders.values():
        sender.expect("to")
        for _ in range(plan["frames"]):
            sender.train(_now_us(), payload, 1)
    while any(sender.receivers["to"].durable < plan["frames"] for sender in senders.values()):
        for event in transport.wait(20):
            match event:
                case LinkUp():
                    hello = Hello(version=1, node="from", incarnation=1, lane=event.lane)
                    if not event.lane:
                        transport.send("to", encode_frame(hello))
                        continue
                    transport.introduce("to", event.lane, encode_frame(hello))
                    for sender in senders.values():
                        sender.peer(_now_us(), "to", LinkEvent.PEER_DOWN)
                        sender.peer(_now_us(), "to", LinkEvent.PEER_UP)
                case LinkDown():
                    assert event.lane, "the line broke"
                case Arrival():
                    message, _ = decode_frame(event.frames)
                    senders[message.stream].receive(_now_us(), "to", message)
        for sender in senders.values():
            sender.tick(_now_us())
        for effect in outbox.take():
            if isinstance(effect, Send):
                stream, frame = way_of(effect.message)
                frames = encode_frame(effect.message, effect.payload)
                transport.send("to", frames, stream=stream, frame=frame)
    transport.close()


def receive(plan: dict[str, Any]) -> None:
    """Take everything; say how fast it came."""
    from medusa.runtime.keys.key_files import CurveKey
    from medusa.runtime.transport.link_events import Arrival
    from medusa.runtime.transport.zeromq import Transport
    from medusa.wire.codec import decode_frame, encode_frame
    from medusa.wire.link.automaton import LinkEvent, LinkSettings
    from medusa.wire.link.lanes import LaneOrder
    from medusa.wire.link.receiver import ReceivedRows, Receiver
    from medusa.wire.messages.links import Hello
    from medusa.wire.outbox import Outbox, Send

    key = CurveKey(plan["keys"]["receive"]) if plan["keys"] else None
    transport = Transport(listen=plan["listen"], key=key)
    if key is not None:
        transport.trust([CurveKey(plan["keys"]["send"]).public], {})
    print(json.dumps({"address": transport.endpoint}), flush=True)
    outbox, settings = Outbox(), LinkSettings()
    receivers = {
        name: Receiver(name, "from", incarnation=1, outbox=outbox, settings=settings)
        for name in plan["streams"]
    }
    orders = {name: LaneOrder(plan["lanes"], settings.window_bytes) for name in plan["streams"]}
    lanes: dict[str, int] = {}
    control, rows, early, begun = "", 0, 0, 0.0
    while rows < plan["frames"] * len(receivers):
        for event in transport.wait(10):
            if not isinstance(event, Arrival):
                continue
            message, payload = decode_frame(event.frames)
            if isinstance(message, Hello):
                if message.lane:
                    lanes[event.link] = message.lane
                elif not control:
                    control = event.link
                    for receiver in receivers.values():
                        receiver.peer_event(_now_us(), LinkEvent.PEER_UP)
                continue
            begun = begun or time.perf_counter()
            receiver, frames = receivers[message.stream], [(message, payload)]
            if plan["striped"]:
                order = orders[message.stream]
                frames = order.receive(lanes[event.link], message, payload)
                early = max(early, order.held_bytes)
            for each in frames:
                for delivery in receiver.receive(_now_us(), *each):
                    rows += isinstance(delivery, ReceivedRows)
                    receiver.consumed(_now_us(), delivery.cost)
                    receiver.durable(_now_us(), receiver.next_seq)
        for receiver in receivers.values():
            receiver.tick(_now_us())
        for effect in outbox.take():
            if isinstance(effect, Send):
                transport.send(control, encode_frame(effect.message))
    took = time.perf_counter() - begun
    again = sum(receiver.attachments - 1 for receiver in receivers.values())
    print(json.dumps({"speed": rows * FRAME_BYTES / took, "again": again, "early": early}), flush=True)
    until = time.perf_counter() + 1
    while time.perf_counter() < until and control:
        for receiver in receivers.values():
            receiver.tick(_now_us())
        for effect in outbox.take():
            if isinstance(effect, Send):
                transport.send(control, encode_frame(effect.message))
        transport.wait(10)
    transport.close()


# --- runs ---------------------------------------------------------------------------------------------


def one_run(line: dict[str, Any], net: Any, lanes: int, striped: bool, streams: int) -> dict[str, Any]:
    """One transfer between two processes."""
    far = "loss" in line
    total = FAR_BYTES if far else BYTES
    plan: dict[str, Any] = {
        "lanes": lanes,
        "striped": striped,
        "streams": [f"bench.s{number}" for number in _apart(lanes)[:streams]],
        "frames": total // FRAME_BYTES // streams,
        "listen": f"tcp://{net.addresses['to']}:*" if far else "tcp://127.0.0.1:*",
        "keys": None,
    }
    if line.get("keyed"):
        ours, theirs = zmq.curve_keypair(), zmq.curve_keypair()
        plan["keys"] = {"send": ours[1].decode(), "receive": theirs[1].decode(), "public": theirs[0].decode()}
    ends: list[subprocess.Popen[str]] = []
    timers = []
    try:
        for end, host in (("receive", "to"), ("send", "from")):
            command = [sys.executable, "-m", "bench.lanes", "--end", end]
            pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "cwd": ROOT}
            if far:
                ends.append(net.popen(host, *command, **pipes))
            else:
                ends.append(subprocess.Popen(command, text=True, **pipes))
            timers.append(threading.Timer(DEADLINE_S, ends[-1].kill))
            timers[-1].start()
            ends[-1].stdin.write(json.dumps(plan) + "\n")
            ends[-1].stdin.flush()
            if end == "receive":
                plan["address"] = _said(ends[0])["address"]
        found = _said(ends[0])
        assert ends[1].wait(DEADLINE_S) == 0
        return found
    finally:
        for timer in timers:
            timer.cancel()
        for process in ends:
            process.kill()
            process.communicate()


def _said(process: subprocess.Popen[str]) -> dict[str, Any]:
    line = process.stdout.readline() if process.stdout else ""
    if not line:
        raise RuntimeError("an end of the link ended without a word")
    return json.loads(line)


def _apart(lanes: int) -> list[int]:
    """Streams that pinning spreads evenly, as many of them would be."""
    from medusa.wire.link.lanes import lane_of

    chosen: list[int] = []
    for number in range(1000):
        taken = {lane_of(f"bench.s{each}", lanes) for each in chosen[len(chosen) // lanes * lanes :]}
        if lane_of(f"bench.s{number}", lanes) not in taken:
            chosen.append(number)
        if len(chosen) == max(STREAMS):
            return chosen
    raise AssertionError("a thousand names fall on few lanes")


def measure(rounds: int) -> dict[str, Any]:
    from medusa.apps.workloads.network.net import Net, why_not

    found: dict[str, Any] = {**machine.describe(), "rounds": rounds, "why_not": why_not(), "lines": {}}
    for name, line in LINES.items():
        if "loss" in line and found["why_not"]:
            continue
        net = Net(["from", "to"]) if "loss" in line else None
        try:
            if net is not None:
                net.set(delay_s=DELAY_S, loss=line["loss"])
            runs: dict[str, list[dict[str, Any]]] = {}
            for _ in range(rounds):
                for streams in STREAMS:
                    for lanes, striped in SPREADS:
                        key = f"{streams} {lanes} {'striped' if striped else 'pinned'}"
                        runs.setdefault(key, []).append(one_run(line, net, lanes, striped, streams))
            found["lines"][name] = runs
        finally:
            if net is not None:
                net.close()
    found["load_after"] = os.getloadavg()[0]
    return found


def table(found: dict[str, Any]) -> str:
    lines = [
        report.machine_line(found),
        f"Frames of 64 KiB, {BYTES >> 20} MiB on loopback and {FAR_BYTES >> 20} MiB over a line; MB/s, "
        f"medians of {found['rounds']} rounds (least to most). Load after: {found['load_after']:.1f}.",
        "",
        "| line, streams | " + " | ".join(f"{n} {'striped' if s else 'pinned'}" for n, s in SPREADS) + " |",
        "|---|" + "---|" * len(SPREADS),
    ]
    for name, runs in found["lines"].items():
        for streams in STREAMS:
            cells = []
            for lanes, striped in SPREADS:
                speeds = [
                    run["speed"] / 1e6
                    for run in runs[f"{streams} {lanes} {'striped' if striped else 'pinned'}"]
                ]
                cells.append(f"{median(speeds):,.1f} ({min(speeds):,.1f} to {max(speeds):,.1f})")
            lines.append(f"| {name}, {streams} | " + " | ".join(cells) + " |")
    if found["why_not"]:
        lines += ["", f"No line with delay and loss here: {found['why_not']}."]
    most = max(run["early"] for runs in found["lines"].values() for each in runs.values() for run in each)
    lines += ["", f"Most that waited out of order, per stream: {most / 1e6:.1f} MB."]
    return "\n".join(lines) + "\n"


def write(found: dict[str, Any], folder: Path) -> str:
    return report.save("lanes", found, table(found), folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--end", choices=["send", "receive"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.end:
        plan = json.loads(sys.stdin.readline())
        (send if options.end == "send" else receive)(plan)
    else:
        sys.stdout.write(write(measure(options.rounds), options.out))


if __name__ == "__main__":
    main()
