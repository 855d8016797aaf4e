"""State and output that go to disk give the same rows in the same order with the same bits."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import medusa as md
from medusa.elements import Boundary, Kind, Train
from medusa.engine.fragment import Fragment
from medusa.engine.operators import sink_spill
from medusa.engine.operators.windows import window_spill, window_spill_part
from medusa.engine.state.delta import read_table
from tests.engine.queries import batch_of, inputs, queries
from tests.engine.spilling import MemorySpill, storage_of
from tests.engine.test_threads import bits
from tests.oracle.query import Promise


@pytest.fixture(autouse=True)
def _little_is_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window_spill, "PARTS_MAX", 5)
    monkeypatch.setattr(window_spill, "GATHERED_ROWS", 4)
    monkeypatch.setattr(window_spill, "CHUNK_BYTES_MIN", 100)
    monkeypatch.setattr(window_spill_part, "WAITING_BYTES_MIN", 150)
    monkeypatch.setattr(sink_spill, "PIECE_BYTES", 100)


class Feeder:
    """Feeds a fragment and keeps what comes out: elements of each sink."""

    def __init__(self, q: md.Query, budget: int | None, memory: int = 0) -> None:
        self.graph, self.budget, self.memory = q.graph, budget, memory
        self.port = MemorySpill()
        self.out: dict[str, list[Any]] = {name: [] for name in q.sinks}
        self.fragment = Fragment(q.graph, storage=self.storage())

    def storage(self) -> Any:
        return None if self.budget is None else storage_of(self.port, self.budget, self.memory)

    def push(self, source: str, rows: list[dict[str, Any]], cuts: Any) -> None:
        edges = sorted({0, len(rows), *(cut for cut in cuts if cut < len(rows))})
        for start, end in pairwise(edges):
            self.fragment.feed(source, Train(batch=batch_of(rows[start:end])))

    def drain(self, bytes_max: int | None = None) -> None:
        for sink, found in self.out.items():
            found += self.fragment.sink(sink).take(bytes_max)

    def reload(self, budget: int | None) -> None:
        files = {name: bytes(data) for name, data in self.fragment.snapshot().items()}
        self.budget, self.port = budget, MemorySpill()
        self.fragment = Fragment.restore(self.graph, files, storage=self.storage())

    def rows(self, *, kind: Kind = Kind.STABLE) -> dict[str, Any]:
        found = {}
        for sink, elements in self.out.items():
            trains = [each for each in elements if isinstance(each, Train) and each.kind is kind]
            if kind is Kind.STABLE:
                seq = 0
                for train in trains:
                    assert train.first_seq == seq
                    seq += len(train)
            columns = [
                train.batch if train.times is None else train.batch.append_column("@time", train.times)
                for train in trains
            ]
            found[sink] = bits(pa.Table.from_batches(columns)) if columns else []
        return found

    def state(self) -> Any:
        """Tables and numbers, but for rows that wait to be taken."""
        files = self.fragment.snapshot()
        tables = {
            name: bits(read_table(data))
            for name, data in files.items()
            if name.endswith(".arrow") and ".held." not in name
        }
        return tables, json.loads(bytes(files["fragment.json"]))


@settings(max_examples=40)
@given(st.data())
def test_a_tiny_budget_changes_nothing(data: st.DataObject) -> None:
    """Random queries: rows, order, bits, state and dead rows, with restores from and to any budget."""
    q = data.draw(queries(unions=False))
    events = data.draw(inputs(list(q.sources)))
    cuts = data.draw(st.sampled_from([[], [1], [2, 3, 7], [5]]))
    budgets = st.sampled_from([0, 1 << 18, 1 << 20, None])
    reload_at = data.draw(st.integers(-1, len(events)))
    often = data.draw(st.booleans())
    plain, spilling = Feeder(q, None), Feeder(q, data.draw(budgets), data.draw(st.sampled_from([0, 300])))
    after = data.draw(budgets)
    for number, event in enumerate(events):
        for feeder in (plain, spilling):
            if number == reload_at:
                feeder.reload(None if feeder is plain else after)
            if isinstance(event, Promise):
                feeder.fragment.feed(event.source, Boundary(event.time))
            else:
                feeder.push(event.source, event.rows, [] if feeder is plain else cuts)
            if often:
                feeder.drain(None if feeder is plain else 64)
    if not cuts:
        assert spilling.state() == plain.state()
    for feeder in (plain, spilling):
        feeder.fragment.finish()
        feeder.drain()
    assert spilling.rows() == plain.rows()
    assert spilling.fragment.dead() == plain.fragment.dead()
    assert not spilling.port.files  # all was taken
