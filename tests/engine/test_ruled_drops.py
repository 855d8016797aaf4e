"""What a fragment leaves out behind its sources by the rules that placement put there: the same rows however
they are cut, and after a restore at any place; each counted once; windows whole or absent."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import medusa as md
from medusa.elements import END_US, Boundary, Shed, Train
from medusa.engine.fragment import Fragment
from medusa.errors import DataError, QueryError, StateError
from medusa.query.boxes import Graph, Source
from medusa.query.boxes.shedding_rule import SheddingRule, ThinnedOutput
from medusa.query.graph import check_graph
from medusa.query.signature import signatures

SCHEMA = {"ts": "int64", "k": "int64", "v": "int64"}
SECOND_US = 1_000_000
WORTH = md.QoS(loss=[(100, 1), (0, 0)])
POINTS = ((0.0, 0.0), (100.0, 1.0))
OUT = (ThinnedOutput("out", WORTH),)


def graph(rule: SheddingRule | None, *, windows: bool = False) -> Graph:
    q = md.Query("q")
    rows = q.source("a", SCHEMA, time="ts", unit="us", slack="0s")
    if windows:
        rows = rows.window("1s").group_by("k").aggregate(n=md.count(), s="sum(v)", name="counts")
    q.sink("out", rows, qos=WORTH)
    boxes = tuple(
        msgspec.structs.replace(box, shed=rule) if isinstance(box, Source) else box for box in q.graph.boxes
    )
    return msgspec.structs.replace(q.graph, boxes=boxes)


def rows(count: int) -> list[tuple[int, int, int]]:
    """In order of their times, some thirty a second."""
    return [(n * 33_333 + n * n % 7, n % 3, n * 37 % 101) for n in range(count)]


def train(part: Sequence[tuple[int, int, int]]) -> Train:
    columns = list(zip(*part, strict=True))
    batch = pa.record_batch(
        {name: pa.array(column, pa.int64()) for name, column in zip(SCHEMA, columns, strict=True)}
    )
    return Train(batch=batch)


Step = Sequence[tuple[int, int, int]] | Shed
CUTS = st.lists(st.integers(0, 200), max_size=12)
SHARES = st.lists(
    st.tuples(st.integers(0, 200), st.sampled_from([0, 100_000, 500_000, 730_000, 1_000_000])), max_size=5
)


def steps(count: int, cuts: Sequence[int], shares: Sequence[tuple[int, int]]) -> list[Step]:
    """Rows cut there, and shares that hold from there on."""
    data, told = rows(count), dict(shares)
    edges = sorted({0, count, *(at for at in (*cuts, *told) if at < count)})
    made: list[Step] = []
    for begin, end in itertools.pairwise(edges):
        made += [Shed(told[begin])] if begin in told else []
        made.append(data[begin:end])
    return made


def run(fragment: Fragment, part: Sequence[Step]) -> tuple[list[dict[str, Any]], int]:
    """What came out, and how many rows were left out."""
    found: list[dict[str, Any]] = []
    shed = 0
    for step in part:
        fragment.feed("a", step if isinstance(step, Shed) else train(step))
        found += [
            each for one in fragment.drain("out") if isinstance(one, Train) for each in one.batch.to_pylist()
        ]
        shed += fragment.ruled.take()
    return found, shed


def ended(fragment: Fragment) -> list[dict[str, Any]]:
    fragment.feed("a", Boundary(int(END_US)))
    return [each for one in fragment.drain("out") if isinstance(one, Train) for each in one.batch.to_pylist()]


RULES = [
    SheddingRule(OUT),
    SheddingRule(OUT, value=("v", POINTS)),
    SheddingRule(OUT, window_us=SECOND_US),
]


@given(st.sampled_from([0, 1, 2]), CUTS, SHARES, st.integers(0, 200))
@settings(max_examples=80, deadline=None)
def test_neither_cuts_nor_a_restore_change_what_is_left_out(
    kind: int, cuts: list[int], shares: list[tuple[int, int]], at: int
) -> None:
    made = graph(RULES[kind], windows=kind == 2)
    whole = Fragment(made)
    want, left_out = run(whole, steps(200, (), shares))
    want += ended(whole)
    part = steps(200, cuts, shares)
    before = at % (len(part) + 1)
    first = Fragment(made)
    got, shed = run(first, part[:before])
    second = Fragment.restore(made, first.snapshot())
    more, again = run(second, part[before:])
    assert got + more + ended(second) == want
    assert shed + again == left_out
    counts = {each["box"]: each["shed"] for each in second.figures()}
    assert counts["a"] == counts["out"] == left_out


@given(CUTS, SHARES)
@settings(max_examples=60, deadline=None)
def test_windows_are_whole_or_absent(cuts: list[int], shares: list[tuple[int, int]]) -> None:
    """By brute force: a window of all keys is decided with its first row, by what is owed by then."""
    fragment = Fragment(graph(RULES[2], windows=True))
    got, left_out = run(fragment, steps(200, cuts, shares))
    got += ended(fragment)
    share, owed, gone, told = 0.0, 0.0, {}, dict(shares)
    for n, (ts, _, _) in enumerate(rows(200)):
        share = told.get(n, round(share * 1e6)) / 1e6
        window = ts // SECOND_US
        if window not in gone:
            owed += share
            gone[window] = owed >= 1 - 1e-9
            owed -= gone[window]
    want: dict[tuple[int, int], list[int]] = {}
    for ts, k, v in rows(200):
        if not gone[ts // SECOND_US]:
            want.setdefault((ts // SECOND_US, k), []).append(v)
    assert {(each["window_start"].timestamp() // 1, each["k"]): (each["n"], each["s"]) for each in got} == {
        key: (len(values), sum(values)) for key, values in want.items()
    }
    assert left_out == 200 - sum(map(len, want.values()))


def test_the_least_important_rows_go_first() -> None:
    fragment = Fragment(graph(RULES[1]))
    run(fragment, [rows(4096)])
    got, left_out = run(
        fragment, [Shed(500_000), [(5_000_000_000 + n, 0, n * 37 % 101) for n in range(4096)]]
    )
    assert 0.4 < left_out / 4096 < 0.6
    kept = [each["v"] for each in got]
    assert min(kept) >= 45
    assert sum(v >= 55 for v in kept) == sum(n * 37 % 101 >= 55 for n in range(4096))


def test_without_a_rule_nothing_can_be_left_out_and_nothing_is_kept_for_it() -> None:
    fragment = Fragment(graph(None))
    with pytest.raises(DataError, match="nothing ever is there") as error:
        fragment.feed("a", Shed(500_000))
    assert error.value.code == "data.shed"
    assert b"shedding" not in bytes(fragment.snapshot()["fragment.json"])
    ruled = Fragment(graph(RULES[0]))
    for wrong in (-1, 1_000_001):
        with pytest.raises(DataError, match="can't be left out"):
            ruled.feed("a", Shed(wrong))


def test_a_rule_is_no_part_of_what_a_state_belongs_to() -> None:
    """Who deploys with other graphs of quality of service takes over all state."""
    plain, ruled = check_graph(graph(None)), check_graph(graph(RULES[0]))
    assert signatures(plain) == signatures(ruled)
    fragment = Fragment(graph(None))
    run(fragment, [rows(10)])
    assert Fragment.restore(graph(RULES[0]), fragment.snapshot()).sources["a"].accepted == 10


def test_a_damaged_state_of_it_is_refused() -> None:
    fragment = Fragment(graph(RULES[2], windows=True))
    run(fragment, [Shed(500_000), rows(100)])
    files = {name: bytes(data) for name, data in fragment.snapshot().items()}
    for before, after in ((b'"owed"', b'"owes"'), (b'"seen": 100', b'"seen": -1'), (b'"shed":', b'"shod":')):
        index = files["fragment.json"].replace(before, after).replace(before.replace(b": ", b":"), after)
        assert index != files["fragment.json"], "nothing was damaged"
        with pytest.raises(StateError):
            Fragment.restore(graph(RULES[2], windows=True), {**files, "fragment.json": index})


@pytest.mark.parametrize(
    ("rule", "what"),
    [
        (SheddingRule(OUT, value=("none", POINTS)), "no numeric column"),
        (SheddingRule(OUT, window_us=SECOND_US, value=("v", POINTS)), "not by both"),
        (SheddingRule(OUT, value=("v", ((0.0, 0.0), (1.0, 7.0)))), "utility of 0 to 1"),
    ],
)
def test_a_rule_that_does_not_fit_its_source_is_refused(rule: SheddingRule, what: str) -> None:
    with pytest.raises(QueryError, match=what):
        check_graph(graph(rule))
