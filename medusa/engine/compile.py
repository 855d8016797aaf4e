"""From a checked graph to boxes that run."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from medusa.engine.core.box import Operator
from medusa.engine.core.dead_letters import DeadLetters
from medusa.engine.core.memory_bounds import Storage
from medusa.engine.core.site import Site
from medusa.engine.operator_kinds import OPERATORS
from medusa.engine.operators.fused_rows import link_chains
from medusa.engine.operators.spill.spill_box import SpillBox
from medusa.ports import Segments, Tasks, Workers
from medusa.query.boxes import Box, Input, Sink
from medusa.query.graph import CheckedGraph

__all__ = ["compile_graph", "readers_of_time"]


def compile_graph(
    checked: CheckedGraph,
    letters: DeadLetters,
    *,
    sink_times: bool,
    running: Mapping[str, Operator] | None = None,
    functions: Mapping[str, object] | None = None,
    tasks: Tasks | None = None,
    workers: Workers | None = None,
    histories: Callable[[str], Segments] | None = None,
    storage: Storage | None = None,
) -> list[Operator]:
    """One running box for each box of the graph, in its order, not yet connected.

    Args:
        sink_times: trains at sinks carry their times.
        running: boxes that there are already, by id; they are used as they are.
        functions: of users, by box, where they aren't registered.
        tasks: runs async functions.
        workers: run copies of boxes over disjoint keys.
        histories: where each connection point keeps its history; None: they keep none.
        storage: bounds of memory, and where to spill.
    """
    timed = readers_of_time(checked, sink_times=sink_times)
    running = running or {}

    def made(box: Box) -> Operator:
        site = Site(
            inputs=[checked.shapes[arc] for arc in box.inputs],
            output=checked.shapes[Input(box.id)],
            letters=letters,
            timed=timed[box.id],
            functions=functions or {},
            tasks=tasks,
            workers=workers,
            histories=histories,
            storage=storage,
            origins=[checked.boxes[arc.box] for arc in box.inputs],
        )
        return _made(box, site)

    boxes = [running[box.id] if box.id in running else made(box) for box in checked.graph.boxes]
    link_chains(checked, {box.id: box for box in boxes}, timed)
    return boxes


def _made(box: Box, site: Site) -> Operator:
    """The running box; where state may go to disk, and has keys, one that can part with it."""
    kind = OPERATORS[type(box)]
    spill, room = kind.spill, None if site.storage is None else site.storage.room
    if room is None or spill is None or getattr(box, "keys", True) == ():
        return kind.make(box, site)
    return SpillBox(lambda: kind.make(box, site), lambda plain: spill(box, site, plain), room, site.letters)


def readers_of_time(checked: CheckedGraph, *, sink_times: bool) -> dict[str, bool]:
    """Of each box: whether anything below reads the times of its output."""
    reads: dict[str, bool] = {}
    for box in reversed(checked.graph.boxes):
        ports = [port for port in box.ports if checked.shapes[Input(box.id, port)].timed]
        readers = [checked.boxes[id] for port in ports for id, _ in checked.consumers[Input(box.id, port)]]
        reads[box.id] = any(
            reader.reads_time(sink_times if isinstance(reader, Sink) else reads[reader.id])
            for reader in readers
        )
    return reads
