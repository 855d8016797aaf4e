"""A query that its node answers by a clock, in virtual time, with what the engine was really fed.

    left, right: publishers ──> n: boxes ──> sinks: reader
                                └── dies again and again, and its clock is set meanwhile

What the fragment was fed at last, fed to a run of one program, gives what the reader should have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import medusa as md
from medusa.elements import END_US, Boundary, Element, Train
from medusa.nodes.config.settings import Limits
from medusa.nodes.fragment.input_queue import InputQueue
from medusa.nodes.fragment.inputs import Work
from medusa.query.boxes import Sink, Source
from medusa.sim.actors.federation import Federation
from medusa.sim.world.clock import EPOCH_US

SCHEMA = {"ts": "timestamp[us, UTC]", "k": "utf8", "v": "int64"}
SPAN_US = 2_000_000


def rows(times_us: Sequence[int], dice: Random) -> pa.Table:
    """Rows with these times, by the clocks of the world."""
    return pa.table(
        {
            "ts": pa.array([EPOCH_US + each for each in times_us], pa.timestamp("us", tz="UTC")),
            "k": [dice.choice("abcd") for _ in times_us],
            "v": list(range(len(times_us))),
        }
    )


class ClockedRun:
    """One run of a query at node ``n``; ``fed``: by its number, when and what a source was fed at last."""

    def __init__(self, seed: int, q: md.Query, patch: pytest.MonkeyPatch, *, memory: bool = False) -> None:
        self.dice = Random(seed)
        self.q = q
        self.fed: dict[int, tuple[int, str, Element]] = {}
        limits = Limits(checkpoint_every_us=200_000)
        self.federation = Federation(seed, ["n"], limits=limits, memory=["n"] if memory else [])
        self.node = self.federation.nodes["n"]
        self.sinks = [box.id for box in q.graph.boxes if isinstance(box, Sink)]
        self.reader = self.federation.client("reader", "n")
        self._columns = {box.id: box.schema for box in q.graph.boxes if isinstance(box, Source)}
        given = InputQueue.next

        def next(feeding: InputQueue, now_us: int, *, noting: bool) -> Work | None:
            work = given(feeding, now_us, noting=noting)
            if work is not None and isinstance(work.element, Train | Boundary):
                assert noting is not memory
                self.fed[work.number] = self.federation.world.now_us, work.input.source, work.element
            return work

        patch.setattr(InputQueue, "next", next)
        self.federation.start()
        reply, _ = self.federation.answer(self.reader, self.reader.deploy(q, {"n": [*self._columns]}))
        assert reply.code == "", reply
        for sink in self.sinks:
            self.reader.read(f"{q.graph.name}.{sink}")

    def publish(self, source: str, data: pa.Table, times_us: Mapping[int, int], *, ends: bool = True) -> None:
        """Publish rows from ``begin`` up to the next, each at its time of the world."""
        world, stream, columns = self.federation.world, f"{self.q.graph.name}.{source}", self._columns[source]
        client = self.federation.client(f"pub-{source}", "n")
        begins = [*times_us, len(data)]
        for place, (begin, at_us) in enumerate(times_us.items()):
            piece = data.slice(begin, begins[place + 1] - begin)
            world.at(at_us, lambda piece=piece: client.publish(stream, piece, columns))
        if ends:
            world.at(max(times_us.values()) + 1, lambda: client.finish(stream, columns))

    def kill(self, count: int, span_us: int = SPAN_US) -> None:
        """The node dies at some moments and comes back soon, with another time."""
        world = self.federation.world
        for _ in range(count):
            at_us = self.dice.randrange(50_000, span_us)
            world.after(at_us, self.node.crash)
            world.after(at_us, lambda: self.node.clock.step(self.dice.randrange(-400_000, 400_000)))
            world.after(at_us + self.dice.randrange(1_000, 200_000), self.node.restart)

    def answer(self) -> dict[str, list[Any]]:
        """Rows of each sink, once all have ended."""
        name = self.q.graph.name
        streams = {f"{name}.{sink}" for sink in self.sinks}
        ended = self.federation.run(lambda: self.reader.ended >= streams, for_us=60_000_000)
        assert ended, self.federation.last()
        assert not any(self.reader.lost.values())
        return {
            sink: [row for batch in self.reader.rows.get(f"{name}.{sink}", []) for row in batch.to_pylist()]
            for sink in self.sinks
        }

    def embedded(self) -> dict[str, list[Any]]:
        """What one program gives that is told the same."""
        (fragment,) = self.node.brain.fragments.values()
        with md.start(self.q, clock=md.testing.ManualClock()) as run:
            for number, (_, source, element) in sorted(self.fed.items()):
                if number >= fragment.decided.at:
                    continue  # An earlier life was fed that, and nothing of it has left.
                if isinstance(element, Train):
                    came_us = element.arrival_us
                    run.push(source, element.batch, arrival=came_us)
                elif isinstance(element, Boundary) and element.time_us < END_US:
                    run.boundary(source, element.time_us)
            run.finish()
            return {sink: run.take(sink).to_pylist() for sink in self.sinks}
