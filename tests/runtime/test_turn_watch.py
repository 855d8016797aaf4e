"""A fragment that doesn't give the engine's thread back: the rest of the node goes on and says who it is."""

from __future__ import annotations

import threading
from typing import Any

import pyarrow as pa

import medusa as md
from medusa.nodes.config.settings import Settings
from medusa.nodes.load.load_status import node_load
from medusa.nodes.load.loads import NodeLoads, Usage
from medusa.nodes.reports import FragmentFailed
from medusa.runtime.engine_host.budgets import NEVER, EngineBounds
from medusa.runtime.engine_host.host import EngineHost
from medusa.runtime.machine.clock import SystemClock
from medusa.sim.world.disk import Disk
from medusa.wire.outbox import Outbox, ReportLine, RunFragment
from medusa.wire.status_and_metrics import EngineHeld
from tests.runtime.engine_by_hand import SCHEMA, rows

DEADLINE_S = 60.0
entered, may_leave = threading.Event(), threading.Event()


@md.register("dawdle", version=3)
def dawdle(batch: pa.RecordBatch) -> dict[str, Any]:
    entered.set()
    assert may_leave.wait(DEADLINE_S)
    return {"v": batch.column("v")}


def test_who_holds_the_engine_is_known_to_other_threads_while_it_does() -> None:
    q = md.Query("slow")
    q.sink("out", q.source("rows", SCHEMA, time="ts", slack="0s").apply(dawdle, {"v": "int64"}))
    bounds = EngineBounds(query_bytes=NEVER, owner_bytes=NEVER, piece_us=1)
    woken = threading.Event()
    host = EngineHost(Disk("d"), SystemClock(), wake=woken.set, bounds=bounds)
    assert host.held() is None
    host.open("slow", q.graph)
    host.run(RunFragment(fragment="slow", stream="rows", element=rows(3)))
    assert entered.wait(DEADLINE_S)
    held = host.held()
    assert held is not None
    assert (held.query, held.fragment, held.functions) == ("slow", "slow", ("dawdle 3",))
    assert held.for_us > 1
    may_leave.set()
    assert host.stop(DEADLINE_S)
    assert host.held() is None
    assert [each.fragment for each in host.finished() if isinstance(each, FragmentFailed)] in ([], ["slow"])


def test_it_is_said_once_each_time_and_shown_while_it_lasts() -> None:
    outbox = Outbox()
    loads = NodeLoads(Settings(name="n", listen="", data=""), outbox, {})

    def used(held: EngineHeld | None) -> list[ReportLine]:
        loads.used(0, Usage(cpu_us=0, engine_us=0, memory_bytes=0, cores=1, held=held))
        return [each for each in outbox.take() if isinstance(each, ReportLine)]

    def held(for_us: int) -> EngineHeld:
        return EngineHeld(query="q", fragment="q/1", functions=("f 1", "g 2"), for_us=for_us)

    assert used(None) == []
    assert node_load(loads, 0).engine_held is None
    [said] = used(held(6_000_000))
    assert (said.level, said.what) == ("error", "a fragment holds the engine")
    assert said.fields == {"query": "q", "fragment": "q/1", "functions": "f 1, g 2", "seconds": 6}
    assert used(held(7_000_000)) == []
    assert node_load(loads, 0).engine_held == held(7_000_000)
    assert len(used(held(5_500_000))) == 1, "another time"
    assert used(None) == []
    assert len(used(held(6_000_000))) == 1
