"""Texts that grow leave in pieces: little lies between boxes, and the rows are those of one piece."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import medusa as md
from medusa.elements import END_US, Boundary, Train
from medusa.engine.core import output_pieces
from medusa.engine.fragment import Fragment
from medusa.query.text_growth import TextGrowth, grown

SCHEMA = {"ts": "timestamp[us, UTC]", "v": "int64", "s": "utf8"}


def query(build: Any) -> md.Query:
    q = md.Query("q")
    q.sink("out", build(q.source("rows", SCHEMA, time="ts", slack="0s")))
    return q


def rows(count: int) -> Train:
    texts = ["x" * (number % 50) if number % 7 else None for number in range(count)]
    times = pa.array(range(count), pa.timestamp("us", "UTC"))
    return Train(batch=pa.record_batch({"ts": times, "v": pa.array(range(count)), "s": pa.array(texts)}))


def run(q: md.Query, count: int) -> tuple[list[dict[str, Any]], int]:
    """What comes out, and in how many slices."""
    fragment, slices = Fragment(q.graph), 1
    done = fragment.feed_slice("rows", rows(count), lambda: True)
    while not done:
        done, slices = fragment.go_on(lambda: True), slices + 1
    fragment.feed("rows", Boundary(END_US))
    out = [row for e in fragment.drain("out") if isinstance(e, Train) for row in e.batch.to_pylist()]
    return out, slices


BUILDS = {
    "one box": lambda s: s.select("v", t="concat(s, s, s, s)"),
    "two boxes": lambda s: s.with_columns(s="concat(s, s)").with_columns(t="concat(s, '-', s)"),
    "a filter first": lambda s: s.filter("v % 3 = 0").with_columns(s="concat(s, s, s)"),
    "a filter that grows": lambda s: s.filter("length(concat(s, s, s, s)) > 20"),
    "a window at the end": (
        lambda s: s.with_columns(t="concat(s, s)").window("100us").aggregate(n=md.count(), m=md.max("t"))
    ),
}


@pytest.mark.parametrize("name", BUILDS)
def test_pieces_give_what_one_gives(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    q = query(BUILDS[name])
    whole, slices = run(q, 500)
    assert slices == 1
    assert whole
    monkeypatch.setattr(output_pieces, "BYTES_MAX", 5_000)
    parts, slices = run(q, 500)
    assert parts == whole
    assert slices > 5


def test_texts_that_do_not_grow_are_not_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output_pieces, "BYTES_MAX", 100)
    _, slices = run(query(lambda s: s.select("v", t="upper(s)")), 500)
    assert slices == 1


def test_little_lies_between_boxes() -> None:
    """13 doublings of 100 bytes are 0.8 MB a row: 330 MB."""

    def build(source: Any) -> Any:
        for _ in range(13):
            source = source.with_columns(s="concat(s, s)")
        return source.select("v", n="length(s)")

    text = pa.array(["x" * 100] * 400)
    times = pa.array(range(400), pa.timestamp("us", "UTC"))
    train = Train(batch=pa.record_batch({"ts": times, "v": pa.array(range(400)), "s": text}))
    fragment, most = Fragment(query(build).graph), 0
    before = pa.total_allocated_bytes()

    def rests() -> bool:
        nonlocal most
        most = max(most, pa.total_allocated_bytes() - before)
        return True

    done = fragment.feed_slice("rows", train, rests)
    while not done:
        done = fragment.go_on(rests)
    out = [row for e in fragment.drain("out") if isinstance(e, Train) for row in e.batch.to_pylist()]
    assert [row["n"] for row in out] == [100 << 13] * 400
    assert most < 3 * output_pieces.BYTES_MAX


def test_how_much_an_expression_makes_texts_grow() -> None:
    q = query(lambda s: s.with_columns(t="concat(s, s, 'abc')", u="upper(s)", n="v + 1"))
    (box,) = [each for each in q.graph.boxes if each.id.startswith("with_columns")]
    factors = {each.name: grown(each.expression, TextGrowth({})) for each in box.columns}
    assert factors == {"t": 3.0, "u": 1.0, "n": 1.0}
