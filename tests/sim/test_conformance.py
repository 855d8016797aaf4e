"""The same query, rows and restart: over ZeroMQ and in the simulator all ends in the same states."""

from __future__ import annotations

import threading

import msgspec
import pyarrow as pa

import medusa as md
from medusa.nodes.config.settings import Limits, Settings
from medusa.nodes.node import NodeMind
from medusa.nodes.reports import StopRequested
from medusa.query.boxes import Source
from medusa.runtime.engine_host.host import EngineHost
from medusa.runtime.machine.clock import SystemClock
from medusa.runtime.node.graph_parser import GraphParser
from medusa.runtime.node.loop import NodeLoop
from medusa.runtime.repair.startup import recover
from medusa.runtime.transport.zeromq import Transport
from medusa.sim.actors.federation import Federation
from medusa.sim.trials.federations import windows
from medusa.sim.world.disk import Disk
from tests.ports import free_ports

NODES = ("e1", "e2", "core")
LIMITS = Limits(checkpoint_every_us=50_000, subscriber_timeout_us=500_000)
SINKS = ("all", "out")
STOP_TIMEOUT_US = 20_000_000


def rows(part):
    """Rows of one edge: some windows, in order."""
    times = [17_000 * number for number in range(part, 300, 2)]
    return pa.table(
        {
            "ts": pa.array(times, pa.timestamp("us", "UTC")),
            "k": pa.array(["abc"[number % 3] for number in range(len(times))]),
            "v": pa.array(list(range(len(times))), pa.int64()),
        }
    )


def state_of(brain):
    """Where a node stands: everything that doesn't depend on when something came."""
    catalog = brain.catalog
    fragments = {}
    for name, hosted in brain.fragments.items():
        inputs = {
            (source, peer if input.judged else "a client"): (
                input.fed_seq,
                input.receiver.next_seq,
                input.receiver.durable_seq,
                input.receiver.boundary_us,
                input.receiver.held_bytes,
                input.receiver.lost_rows,
            )
            for (source, peer), input in hosted.inputs.items()
        }
        outputs = {
            output.stream: (
                output.sender.log.next_seq,
                output.sender.log.boundary_us,
                output.sender.durable_positions(),
            )
            for output in hosted.outputs.values()
        }
        fragments[name] = (inputs, outputs, hosted.failed, hosted.mixed)
    deployed = [(each.query, each.nodes, each.state, each.streams) for each in catalog.deployments.values()]
    specs = {name: msgspec.msgpack.encode(spec.graph) for name, spec in catalog.fragments.items()}
    return fragments, deployed, specs, catalog.owners, catalog.stream_names(), catalog.elsewhere()


def settings(addresses):
    return {
        name: Settings(
            name=name,
            listen=addresses[name],
            data=name,
            peers={other: address for other, address in addresses.items() if other != name},
            limits=LIMITS,
        )
        for name in addresses
    }


# --- over ZeroMQ ----------------------------------------------------------------------------------


class Running:
    """One node as in a process: threads, sockets; its disk is in memory."""

    def __init__(self, settings, disk):
        self.clock = SystemClock()
        found = recover(disk, self.clock, node=settings.name, warn=lambda text: None)
        self.transport = Transport(listen=settings.listen, peers=settings.peers)
        self.host = EngineHost(disk, self.clock, wake=self.transport.wake)
        found.resume(self.host)
        self.brain = NodeMind(
            settings,
            incarnation=found.incarnation,
            catalog=found.catalog,
            saved=found.saved,
            first_token=found.first_token,
        )
        self.parser = GraphParser(wake=self.transport.wake)
        self.loop = NodeLoop(
            self.brain, self.transport, self.host, self.clock, parser=self.parser, say=lambda report: None
        )
        self.ended = []
        self.thread = threading.Thread(
            target=lambda: self.ended.append(self.loop.run(stop_timeout_us=STOP_TIMEOUT_US))
        )
        self.thread.start()

    def stop(self):
        self.loop.stop()
        self.thread.join()
        self.host.stop()
        self.parser.stop()
        self.transport.close()
        assert self.ended == [True], "the last checkpoint is written"


def over_zeromq():
    each = settings({name: f"tcp://127.0.0.1:{free_ports(1)[0]}" for name in NODES})
    disks = {name: Disk(name) for name in NODES}
    running = {name: Running(each[name], disks[name]) for name in NODES}
    got = {}
    try:
        q, at = windows()
        with md.connect(each["core"].listen, timeout="60s") as core:
            core.deploy(q, at=at)
        for half in (0, 1):
            for place, edge in enumerate(("e1", "e2")):
                with md.connect(each[edge].listen, timeout="60s") as client:
                    table = rows(place)
                    client.publish("q.flows", table.slice(75 * half, 75))
                    if half:
                        client.finish("q.flows")
                    client.flush()
            if half == 0:
                running["core"].stop()
                running["core"] = Running(each["core"], disks["core"])
        with md.connect(each["core"].listen, timeout="60s") as core:
            for sink in SINKS:
                trains = [train.batch for train in core.subscribe(f"q.{sink}", "oldest", timeout="60s")]
                got[sink] = pa.Table.from_batches(trains)
    finally:
        for name in reversed(NODES):
            running[name].stop()
    return {name: state_of(node.brain) for name, node in running.items()}, got


# --- in the simulator -----------------------------------------------------------------------------


def simulated():
    federation = Federation(5, NODES, limits=LIMITS)
    federation.start()
    q, at = windows()
    columns = next(box.schema for box in q.graph.boxes if isinstance(box, Source))
    core = federation.client("reader", "core")
    assert federation.answer(core, core.deploy(q, at))[0].code == ""

    def durable(client):
        return lambda: client.mind.publications["q.flows"].durable

    for half in (0, 1):
        for place, edge in enumerate(("e1", "e2")):
            client = federation.client(f"c-{edge}-{half}", edge)
            client.publish("q.flows", rows(place).slice(75 * half, 75), columns)
            if half:
                client.finish("q.flows", columns)
            assert federation.run(durable(client))
            for way in ((client.name, edge), (edge, client.name)):
                federation.network.cut(*way)  # it leaves
        if half == 0:
            again(federation, federation.nodes["core"])
    for sink in SINKS:
        core.read(f"q.{sink}")
    assert federation.run(lambda: core.ended == {f"q.{sink}" for sink in SINKS})
    federation.run(for_us=2_000_000)
    got = {sink: pa.Table.from_batches(core.rows[f"q.{sink}"]) for sink in SINKS}
    return {name: state_of(node.brain) for name, node in federation.nodes.items()}, got


def again(federation, node):
    """Stopped with a last checkpoint, and started."""
    node.brain.report(node.clock.monotonic_us(), StopRequested())
    assert federation.run(lambda: node.brain.stopped)
    node.crash()
    node.start()


def test_zeromq_and_the_simulator_end_in_the_same_states():
    real, got = over_zeromq()
    virtual, want = simulated()
    for name in NODES:
        for mine, theirs in zip(real[name], virtual[name], strict=True):
            assert mine == theirs, name
    for sink in SINKS:
        assert got[sink].combine_chunks().equals(want[sink].combine_chunks())
        assert len(got[sink]) > 0
