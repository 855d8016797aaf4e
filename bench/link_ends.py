"""The two ends of a link, each a process of its own: ``python -m bench.link_ends``.

The plan comes as a line of JSON on stdin. An end that listens says where, then each says what it saw: bytes,
their speed after the first eighth, processor seconds, memory beyond what was held before the first.
"""

from __future__ import annotations

import itertools
import json
import select
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bench.worker import memory

STREAM = "bench.rows"
ROTATED_BYTES = 32 << 20
"""Distinct batches, one after the other: neither side works on rows that its cache still holds."""

AT_ONCE = 16
"""Trains made before the link has its turn."""

SCHEMA = pa.schema([("number", pa.int64()), ("value", pa.float64())])


def batches(size: int) -> list[pa.RecordBatch]:
    """Distinct batches of two columns, ``size`` bytes each."""
    rng = np.random.default_rng(7)
    rows = size // 16
    return [
        pa.record_batch([rng.integers(0, 1_000, rows), rng.random(rows)], schema=SCHEMA)
        for _ in range(max(ROTATED_BYTES // size, 1))
    ]


class Meter:
    """Counts what arrives; the clock starts at the first eighth, the processor's at the first frame."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self.total = plan["bytes"] // plan["size"] * (plan["size"] // 16)
        """Rows."""
        self.frames = self.rows = self.number = self.copied = 0
        self._size = plan["size"]
        self._begun: tuple[float, int] | None = None
        self._end = 0.0
        self._held = memory("VmRSS")
        self._cpu = time.process_time()

    def took(self, rows: int, batch: pa.RecordBatch | None = None) -> None:
        self.frames += 1
        self.rows += rows
        if batch is not None:
            self.number += pc.sum(batch.column(0)).as_py()
        if self._begun is None and self.rows >= self.total // 8:
            self._begun = time.perf_counter(), self.rows
        if self.rows >= self.total:
            self._end = time.perf_counter()

    @property
    def done(self) -> bool:
        return self.rows >= self.total

    def figures(self) -> dict[str, Any]:
        found = {
            "cpu": time.process_time() - self._cpu,
            "held": memory("VmHWM") - self._held,
            "rows": self.rows,
            "number": self.number,
            "frames": self.frames,
            "copied": self.copied,
        }
        if self._begun is not None and self._end:
            at, rows = self._begun
            found["speed"] = (self.rows - rows) * 16 / (self._end - at)
        return found


# --- Medusa: the minds and the transport of a node -----------------------------------------------------


def _schema() -> Any:
    from medusa.query.boxes import Field

    return (Field("number", "int64"), Field("value", "float64"))


def _now_us() -> int:
    return time.monotonic_ns() // 1000


def medusa_send(plan: dict[str, Any], address: str) -> dict[str, Any]:
    """Rows into a log that keeps them until they are durable, out as far as credit goes."""
    from medusa.elements import Train
    from medusa.runtime.keys.key_files import CurveKey
    from medusa.runtime.transport.link_events import Arrival, LinkUp
    from medusa.runtime.transport.zeromq import Transport
    from medusa.wire.codec import TrainCodec, decode_frame, encode_frame
    from medusa.wire.link.lanes import way_of
    from medusa.wire.link.sender import Sender
    from medusa.wire.messages.links import Hello
    from medusa.wire.outbox import Outbox, Send

    keys = plan.get("keys")
    secured: dict[str, Any] = {}
    if keys:
        secured = {"key": CurveKey(keys["sender"][1]), "server_keys": {"to": (keys["receiver"][0],)}}
    transport = Transport(listen=None, peers={"to": address}, **secured)
    outbox = Outbox()
    sender = Sender(STREAM, _schema(), timed=False, outbox=outbox)
    sender.expect("to")
    view = sender.receivers["to"]
    codec = TrainCodec(_schema(), timed=False)
    rotated = batches(plan["size"])
    encoded = None if plan["arrow"] else [memoryview(batch.serialize()) for batch in rotated]
    count = plan["bytes"] // plan["size"]
    turns: Iterator[int] = itertools.cycle(range(len(rotated)))

    def ship() -> None:
        for effect in outbox.take():
            if isinstance(effect, Send):
                stream, frame = way_of(effect.message)
                frames = encode_frame(effect.message, effect.payload)
                transport.send("to", frames, stream=stream, weight=1, frame=frame)

    def make() -> None:
        turn = next(turns)
        if encoded is None:
            for payload, rows, late in codec.encode(Train(batch=rotated[turn])):
                sender.train(_now_us(), memoryview(payload), rows, late=late)
        else:
            sender.train(_now_us(), encoded[turn], len(rotated[turn]))

    meter = Meter(plan)
    made = 0
    while made < count or view.durable < sender.log.next_seq:
        working = made < count and not sender.full and sender.log.end - view.cursor < AT_ONCE
        for event in transport.wait(0 if working else 20):
            if isinstance(event, LinkUp):
                hello = Hello(version=1, node="sender", incarnation=1, answer=False, client=False)
                transport.send("to", encode_frame(hello))
            elif isinstance(event, Arrival):
                message, _ = decode_frame(event.frames)
                sender.receive(_now_us(), "to", message)
        while made < count and not sender.full and sender.log.end - view.cursor < AT_ONCE:
            make()
            made += 1
            ship()
        sender.tick(_now_us())
        ship()
    transport.close()
    return meter.figures()


def medusa_receive(plan: dict[str, Any], listening: Callable[[str], None]) -> dict[str, Any]:
    """Every check of a node; durable once summed, as with ``store="memory"``."""
    from medusa.runtime.keys.key_files import CurveKey
    from medusa.runtime.transport.link_events import Arrival
    from medusa.runtime.transport.zeromq import Transport
    from medusa.wire.codec import TrainCodec, decode_frame, encode_frame
    from medusa.wire.link.automaton import LinkEvent
    from medusa.wire.link.receiver import ReceivedRows, Receiver
    from medusa.wire.messages.links import Hello
    from medusa.wire.outbox import Outbox, Send

    keys = plan.get("keys")
    transport = Transport(listen=plan["listen"], key=CurveKey(keys["receiver"][1]) if keys else None)
    if keys:
        transport.trust([keys["sender"][0]], {})
    outbox = Outbox()
    receiver = Receiver(STREAM, "from", incarnation=1, outbox=outbox, schema=_schema(), timed=False)
    codec = TrainCodec(_schema(), timed=False)
    listening(transport.endpoint)
    link = ""
    meter = Meter(plan)
    settled_us = 0

    def ship() -> None:
        for effect in outbox.take():
            if isinstance(effect, Send):
                transport.send(link, encode_frame(effect.message, effect.payload))

    def take(event: Arrival) -> None:
        message, payload = decode_frame(event.frames, peer="from")
        for delivery in receiver.receive(_now_us(), message, payload):
            assert isinstance(delivery, ReceivedRows)
            batch = None
            if plan["arrow"]:
                batch = codec.decode(message, payload, peer="from", skip=delivery.skip).batch
            meter.took(message.rows - delivery.skip, batch)
            receiver.consumed(_now_us(), delivery.cost)

    while not meter.done:
        for event in transport.wait(20):
            if isinstance(event, Arrival) and not link:
                link = event.link
                assert isinstance(decode_frame(event.frames)[0], Hello)
                receiver.peer_event(_now_us(), LinkEvent.PEER_UP)
            elif isinstance(event, Arrival):
                take(event)
            ship()
        if meter.done or _now_us() - settled_us >= receiver.settings.ack_us:  # As a node settles its cuts.
            settled_us = _now_us()
            receiver.durable(settled_us, receiver.next_seq)
        receiver.tick(_now_us())
        ship()
    meter.copied = codec.counters.copied
    found = meter.figures()
    while not select.select([sys.stdin], [], [], 0)[0]:  # The last acknowledgement may be on its way.
        for event in transport.wait(5):
            if isinstance(event, Arrival):
                receiver.receive(_now_us(), *decode_frame(event.frames, peer="from"))
            ship()
    transport.close()
    return found


# --- pyzmq: PUSH and PULL as they come -----------------------------------------------------------------


def _socket(plan: dict[str, Any], kind: int, end: str) -> Any:
    import zmq

    made = zmq.Context.instance().socket(kind)
    if keys := plan.get("keys"):
        public, secret = (each.encode() for each in keys[end])
        made.curve_publickey, made.curve_secretkey = public, secret
        if end == "receiver":
            made.curve_server = True
        else:
            made.curve_serverkey = keys["receiver"][0].encode()
    return made


def pyzmq_send(plan: dict[str, Any], address: str) -> dict[str, Any]:
    import zmq

    push = _socket(plan, zmq.PUSH, "sender")
    push.connect(address)
    rotated = batches(plan["size"])
    encoded = [memoryview(batch.serialize()) for batch in rotated]
    meter = Meter(plan)
    for turn in range(plan["bytes"] // plan["size"]):
        place = turn % len(rotated)
        push.send(memoryview(rotated[place].serialize()) if plan["arrow"] else encoded[place], copy=False)
    push.close(linger=-1)
    zmq.Context.instance().term()
    return meter.figures()


def pyzmq_receive(plan: dict[str, Any], listening: Callable[[str], None]) -> dict[str, Any]:
    import zmq

    pull = _socket(plan, zmq.PULL, "receiver")
    pull.bind(plan["listen"])
    listening(pull.getsockopt_string(zmq.LAST_ENDPOINT).rstrip("\0"))
    meter = Meter(plan)
    while not meter.done:
        frame = pull.recv(copy=False)
        if plan["arrow"]:
            batch = pa.ipc.read_record_batch(pa.py_buffer(frame.buffer), SCHEMA)
            meter.took(len(batch), batch)
        else:
            assert len(frame) > plan["size"]
            meter.took(plan["size"] // 16)
    found = meter.figures()
    pull.close(linger=0)
    return found


# --- Arrow Flight --------------------------------------------------------------------------------------


def flight_put_send(plan: dict[str, Any], address: str) -> dict[str, Any]:
    from pyarrow import flight

    rotated = batches(plan["size"])
    client = flight.connect(address)
    meter = Meter(plan)
    writer, _ = client.do_put(flight.FlightDescriptor.for_path("rows"), SCHEMA)
    for turn in range(plan["bytes"] // plan["size"]):
        writer.write_batch(rotated[turn % len(rotated)])
    writer.close()
    return meter.figures()


def flight_put_receive(plan: dict[str, Any], listening: Callable[[str], None]) -> dict[str, Any]:
    from pyarrow import flight

    meter = Meter(plan)
    over = threading.Event()

    class Server(flight.FlightServerBase):
        def do_put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
            while not meter.done:
                batch = reader.read_chunk().data
                meter.took(len(batch), batch)
            over.set()

    server = Server("grpc://127.0.0.1:0")
    listening(f"grpc://127.0.0.1:{server.port}")
    over.wait()
    found = meter.figures()
    server.shutdown()
    return found


def flight_get_send(plan: dict[str, Any], listening: Callable[[str], None]) -> dict[str, Any]:
    from pyarrow import flight

    rotated = batches(plan["size"])
    count = plan["bytes"] // plan["size"]
    table = pa.Table.from_batches(rotated[turn % len(rotated)] for turn in range(count))

    class Server(flight.FlightServerBase):
        def do_get(self, context: Any, ticket: Any) -> Any:
            return flight.RecordBatchStream(table)

    server = Server("grpc://127.0.0.1:0")
    meter = Meter(plan)
    listening(f"grpc://127.0.0.1:{server.port}")
    sys.stdin.readline()
    found = meter.figures()
    server.shutdown()
    return found


def flight_get_receive(plan: dict[str, Any], address: str) -> dict[str, Any]:
    from pyarrow import flight

    meter = Meter(plan)
    reader = flight.connect(address).do_get(flight.Ticket(b"rows"))
    while not meter.done:
        batch = reader.read_chunk().data
        meter.took(len(batch), batch)
    return meter.figures()


def main() -> None:
    plan = json.loads(sys.stdin.readline())
    end = globals()[f"{plan['way']}_{plan['end']}"]
    if plan["address"]:
        say(end(plan, plan["address"]))
    else:
        say(end(plan, lambda address: say({"address": address})))


def say(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
