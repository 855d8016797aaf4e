"""A query is removed in the middle of what it gives, whatever box it is at: after one piece more at most."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import medusa as md
from medusa.elements import END_US, Boundary, Train
from medusa.engine.core import output_pieces
from medusa.engine.core.box import Operator
from medusa.engine.operators.joins import join
from medusa.engine.operators.sink import SinkBox
from medusa.engine.operators.windows import top
from tests.runtime.engine_by_hand import PIECE_US, SCHEMA, Desk, rows, whole

PIECE = 100
ROWS = 5_000
Build = Callable[[Any], Any]

KINDS: dict[str, Build] = {
    "session": lambda s: s.session("1 s").group_by("v").aggregate(n=md.count()),
    "session, all end at once": lambda s: (
        s.with_columns(g="v % 2500").session("1 s").group_by("g").aggregate(n=md.count())
    ),
    "top": lambda s: s.window("1 h").top(1_000_000, by="v"),
    "sliding window": lambda s: s.window("40 us", "10 us").group_by("v").aggregate(n=md.count()),
    "sort": lambda s: s.wsort("v", "1 h"),
    "sunion": lambda s: md.sunion(s, s.filter("v % 2 = 0"), bucket="1 h"),
    "bounded sort": lambda s: s.bsort("v", ROWS, by="k"),
    "join": lambda s: s.join(s.select("k", w="v"), on="k", within="10 us").select("k", "v", "w"),
}


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch) -> Desk:
    """Pieces are small, and each takes its time: two are a slice."""
    monkeypatch.setattr(output_pieces, "ROWS_MAX", PIECE)
    monkeypatch.setattr(join, "PAIRS_MAX", PIECE)
    made, step = Desk(), Operator.step

    def slow(box: Operator) -> None:
        made.clock.us += PIECE_US
        step(box)

    monkeypatch.setattr(Operator, "step", slow)
    return made


@pytest.mark.parametrize("kind", KINDS)
def test_a_removal_waits_for_a_piece_of_any_box(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    q = md.Query("heavy")
    q.sink("out", KINDS[kind](q.source("rows", SCHEMA, time="ts", slack="0s")))
    elements = rows(ROWS), Boundary(END_US)
    given = len(whole(q.graph, *elements))
    assert given >= ROWS // 2
    came: list[int] = []
    on_train = SinkBox.on_train

    def count(box: SinkBox, input: int, train: Train) -> None:
        came.append(len(train))
        on_train(box, input, train)

    monkeypatch.setattr(SinkBox, "on_train", count)
    desk.open(q)
    desk.feed("heavy", *elements)
    while sum(came) == 0:
        assert desk.hands.engine(1)
    before = sum(came)
    assert before <= 10 * PIECE, "it is in the middle"
    desk.host.close("heavy")
    desk.work()
    assert sum(came) - before <= 4 * PIECE < given, "a slice more, of two pieces and some rows"
    assert desk.host.stop()
    assert sum(came) - before <= 4 * PIECE


@pytest.mark.parametrize("build", [KINDS["sort"], KINDS["top"], lambda s: s.window("1 h").top(9, by="v / 3")])
@pytest.mark.parametrize("end", [[], [Boundary(END_US)]])
def test_what_puts_rows_in_order_pauses_before_any_of_them_leaves(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, build: Build, end: list[Boundary]
) -> None:
    """Else a removal waits until all are sorted. Rows of a top are sorted as they come, too."""
    monkeypatch.setattr(top, "REDUCE_ROWS", ROWS * 2 if end else ROWS // 2)
    left: list[int] = []
    monkeypatch.setattr(SinkBox, "on_train", lambda box, input, train: left.append(len(train)))
    q = md.Query("heavy")
    q.sink("out", build(q.source("rows", SCHEMA, time="ts", slack="0s")))
    desk.open(q)
    begun_us = desk.clock.us
    desk.feed("heavy", rows(ROWS), *end)
    while not left and desk.hands.engine(1):
        pass
    pauses = (desk.clock.us - begun_us) // PIECE_US
    assert pauses >= 2 * ROWS // PIECE, "one for each piece that is sorted, and that is put together"


@pytest.mark.parametrize("kind", KINDS)
def test_pieces_give_what_one_gives(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    q = md.Query("heavy")
    q.sink("out", KINDS[kind](q.source("rows", SCHEMA, time="ts", slack="0s")))
    elements = rows(ROWS), Boundary(2_000), rows(ROWS, ROWS), Boundary(END_US)
    once = whole(q.graph, *elements)
    monkeypatch.setattr(output_pieces, "ROWS_MAX", PIECE)
    monkeypatch.setattr(join, "PAIRS_MAX", PIECE)
    assert whole(q.graph, *elements) == once


@pytest.mark.parametrize("descending", [True, False])
@pytest.mark.parametrize("edge", [(1 << 63) - 1, -(1 << 63)])
def test_a_null_is_last_of_the_top_beside_the_largest_and_the_least_value(
    descending: bool, edge: int
) -> None:
    """Both are coded as the last place where they are taken as they are."""
    q = md.Query("q")
    source = q.source("rows", SCHEMA, time="ts", slack="0s")
    q.sink("out", source.window("1 h").top(3, by="v", descending=descending))
    values = [None, edge, 0]
    times = pa.array(range(3), pa.timestamp("us", "UTC"))
    train = Train(
        batch=pa.record_batch({"ts": times, "k": pa.array([1] * 3), "v": pa.array(values, "int64")})
    )
    known = sorted([edge, 0], reverse=descending)
    assert [row["v"] for row in whole(q.graph, train, Boundary(END_US))] == [*known, None]
