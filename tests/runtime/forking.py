"""A host of one fragment that is forked, driven by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from medusa.elements import Element, Train
from medusa.nodes.reports import Forked, Ran
from medusa.query.boxes import Graph
from medusa.runtime.engine_host.budgets import NEVER, EngineBounds
from medusa.runtime.engine_host.host import EngineHost
from medusa.sim.world.disk import Disk
from medusa.wire.fork_names import fork_name
from medusa.wire.outbox import Fork, Owned, Persist, RunFragment
from tests.runtime.engine_by_hand import ByHand, Ticking
from tests.runtime.test_pieces import KEYS, query, train

F = "f"
FORK = fork_name(F, 1)
TOKEN = 17

Fed = tuple[str, Element]
"""A source and what it is fed."""


class Forking:
    """A host of one fragment, driven by hand, and what it has said by fragment."""

    def __init__(self, graph: Graph, **bounds: int) -> None:
        unbounded = {"query_bytes": NEVER, "owner_bytes": NEVER, "piece_us": NEVER}
        self.graph, self.disk = graph, Disk("d")
        self.clock = Ticking()
        self.hands = ByHand(self.clock)
        self.host = EngineHost(
            self.disk,
            self.clock,
            wake=lambda: None,
            worker=self.hands,
            bounds=EngineBounds(**{**unbounded, **bounds}),
        )
        self.said: list[Any] = []
        self.host.resume("", None, {})
        self.host.owned(Owned(query=graph.name, owner="o"))
        self.host.open(F, graph)
        self.settle()
        self.hands.disk()

    def feed(self, fed: Fed, *names: str) -> None:
        """Give it to these, or to the fragment."""
        for name in names or (F,):
            self.host.run(RunFragment(fragment=name, stream=fed[0], element=fed[1]))

    def fork(self, of: str = F) -> None:
        self.host.fork(Fork(token=TOKEN, fragment=of, fork=FORK))

    def persist(self) -> None:
        self.host.persist(Persist(token=1, fragment=F))

    def work(self, most: int = 1 << 20) -> int:
        """Do so many jobs of the engine; what a fragment holds is looked at again."""
        self.clock.us += 10_000
        count = self.hands.engine(most)
        self.said += self.host.finished()
        return count

    def settle(self) -> None:
        """Work until nothing is left, beside the engine's thread too."""
        self.work()
        while self.hands.beside():
            self.work()

    def of(self, name: str, kind: type = Ran) -> list[Any]:
        return [each for each in self.said if isinstance(each, kind) and each.fragment == name]

    @property
    def forked(self) -> list[Forked]:
        return [each for each in self.said if isinstance(each, Forked)]

    def copying(self, most: int = 5) -> None:
        """Ask for a fork, and begin to copy."""
        self.fork()
        self.work(most)
        assert not self.forked


@pytest.fixture
def large() -> Forking:
    """A fragment with many groups."""
    made = Forking(query().graph)
    made.feed(("rows", train(np.arange(KEYS), 1)))
    made.work()
    made.said.clear()
    return made


def totals(rans: Sequence[Ran]) -> dict[int, int]:
    """The last total of each key."""
    found: dict[int, int] = {}
    for each in rans:
        for _, element in each.outputs:
            assert isinstance(element, Train)
            columns = element.batch.to_pydict()
            found |= dict(zip(columns["k"], columns["total"], strict=True))
    return found
