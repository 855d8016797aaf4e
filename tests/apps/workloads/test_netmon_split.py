"""The query whole, and cut over three nodes: equal answers; with a broken merge of partials, not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from medusa._native import Window
from medusa.apps.workloads import netmon, netmon_check
from medusa.apps.workloads.netmon_check import Row
from medusa.engine.fragment import Fragment
from medusa.engine.operators.windows import aggregate
from medusa.nodes.placement.placement import cut
from medusa.runtime.embedded.embedded_run import collect, start

Answers = dict[str, list[Row]]


@pytest.fixture(scope="module")
def trace() -> pa.Table:
    return netmon.load_trace()


@pytest.fixture(scope="module")
def expected(trace: pa.Table) -> Answers:
    return netmon_check.by_duckdb(trace)


def answers(take: Callable[[str], pa.Table]) -> Answers:
    return {sink: netmon_check.rows_of(sink, take(sink)) for sink in netmon.SINKS}


def verdicts(got: Answers, expected: Answers) -> dict[str, bool]:
    return {each.name: each.equal for each in netmon_check.compare(got, expected)}


def over_three_nodes(trace: pa.Table, seed: int) -> Answers:
    """The fragments of the deployment, in this process: edges to their ends, then the core."""
    plan = cut(netmon.query().graph, netmon.AT)
    made = {spec.node: Fragment(spec.graph) for spec in plan.fragments}
    sent: dict[tuple[str, str], list[Any]] = {}
    for delivery in netmon.deliveries(trace, seed):
        edge = made[delivery.edge]
        for batch in delivery.rows.to_batches(max_chunksize=5_000):
            edge.push_rows("flows", [batch], edge.check_rows("flows", [batch]))
        edge.finish()
        for spec in plan.at(delivery.edge):
            for sink, stream in spec.streams.items():
                sent[delivery.edge, stream] = edge.drain(sink)
    core = made[netmon.CORE]
    for spec in plan.at(netmon.CORE):
        for feed in spec.feeds:
            for element in sent[feed.node, feed.stream]:
                core.feed(feed.source, element)
    taken = {sink: [e.batch for e in core.drain(sink) if hasattr(e, "batch")] for sink in netmon.SINKS}
    return answers(lambda sink: pa.Table.from_batches(taken[sink]))


def test_collected(trace: pa.Table, expected: Answers) -> None:
    got = collect(netmon.query(), flows=trace.drop_columns("file_row"))
    assert verdicts(answers(got.__getitem__), expected) == dict.fromkeys(netmon.SINKS, True)


@pytest.mark.parametrize("seed", [0, 1])
def test_live_with_jitter_and_random_cuts(trace: pa.Table, expected: Answers, seed: int) -> None:
    (even, odd), rng = netmon.deliveries(trace, seed), np.random.default_rng(seed)
    at_us = np.concatenate([even.at_us, odd.at_us])
    flows = pa.concat_tables([even.rows, odd.rows]).take(np.argsort(at_us, kind="stable"))
    taken: dict[str, list[pa.Table]] = {sink: [] for sink in netmon.SINKS}
    with start(netmon.query()) as run:
        cuts = np.sort(rng.integers(0, len(flows), 60))
        for low, high in zip([0, *cuts], [*cuts, len(flows)], strict=True):
            run.push("flows", flows.slice(low, high - low))
            for sink, tables in taken.items():
                tables.append(run.take(sink))
        run.finish()
        for sink, tables in taken.items():
            tables.append(run.take(sink))
    got = answers(lambda sink: pa.concat_tables(taken[sink]))
    assert verdicts(got, expected) == dict.fromkeys(netmon.SINKS, True)


@pytest.mark.parametrize("seed", [0, 1])
def test_cut_over_three_nodes(trace: pa.Table, expected: Answers, seed: int) -> None:
    assert verdicts(over_three_nodes(trace, seed), expected) == dict.fromkeys(netmon.SINKS, True)


class FirstWins:
    """A ``Window`` that, where it should merge the partials of a group, keeps the first only."""

    def __init__(self, **settings: Any) -> None:
        self._window = Window(**settings)
        self._combines = settings["stage"] == "combine"
        self._seen: set[tuple[object, ...]] = set()

    def add(self, rows: Any, times: Any = None) -> None:
        if times is not None:
            self._window.add(rows, times)
            return
        batch = pa.record_batch(rows)
        if self._combines:
            groups = list(zip(*(batch.column(at).to_pylist() for at in (0, 2)), strict=True))
            new = [group not in self._seen for group in groups]
            self._seen.update(groups)
            batch = batch.filter(pa.array(new, pa.bool_()))
        self._window.add(batch)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._window, name)


def test_a_broken_merge_of_partials_is_not_equal(
    trace: pa.Table, expected: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aggregate, "Window", FirstWins)
    found = verdicts(over_three_nodes(trace, 0), expected)
    assert not found["groups"]
    assert not found["heavy"]
    assert not found["both"]


def test_one_altered_row_is_not_equal(trace: pa.Table, expected: Answers) -> None:
    columns = trace.to_pydict()
    columns["src"][1_000] = "203.0.113.9"
    got = collect(netmon.query(), flows=pa.table(columns, trace.schema).drop_columns("file_row"))
    assert not verdicts(answers(got.__getitem__), expected)["groups"]
