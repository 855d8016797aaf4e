"""Boxes before and behind a connection point are split and merged: its history doesn't notice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import medusa as md
from medusa.errors import QueryError

SCHEMA = {"ts": "int64", "k": "int64", "v": "float64"}


def query() -> md.Query:
    q = md.Query("q")
    a = q.source("a", SCHEMA, time="ts", unit="us", slack=20)
    kept = q.connection_point("kept", a.group_by("k").running(n=md.count(), name="before"), keep="1h")
    q.sink("out", kept.filter("n % 2 = 0", name="behind"))
    return q


def reader() -> md.Query:
    q = md.Query("reads")
    rows = q.source("rows", SCHEMA | {"n": "int64"}, time="ts", unit="us")
    q.sink("sums", rows.window(50).group_by("k").aggregate(total=md.sum("n")))
    return q


def rows(start: int) -> dict[str, list[Any]]:
    turns = range(start, start + 40)
    times = [max(0, n - n * 7 % 15) for n in turns]
    return {"ts": times, "k": [n * n % 11 for n in turns], "v": [n % 7 + 0.5 for n in turns]}


def outcome(folder: Path | None, turns: dict[int, list[tuple[str, str]]]) -> list[Any]:
    settings: dict[str, Any] = {} if folder is None else {"history": folder}
    made: list[Any] = []
    with md.start(query(), **settings) as run:
        attached = None
        for number in range(8):
            run.push("a", rows(40 * number))
            for what, box in turns.get(number, []):
                _ = run.split(box, 3) if what == "split" else run.merge(box)
            if number == 3:
                attached = run.attach(reader(), at="kept", history="all")
        run.finish()
        assert attached is not None
        made.append(run.view("kept").to_pylist())
        made.append(run.take("out").to_pylist())
        made.append(attached.take("sums").to_pylist())
        made.append((run.history("kept").rows, attached.first_seq))
    return made


@pytest.mark.parametrize("on_disk", [False, True])
def test_boxes_around_a_history_are_split_and_merged(on_disk: bool, tmp_path: Path) -> None:
    turns = {
        1: [("split", "before")],
        2: [("split", "behind")],
        4: [("merge", "before")],
        5: [("merge", "behind"), ("split", "before")],
    }
    expected = outcome(None, {})
    assert len(expected[0]) == 320
    assert outcome(tmp_path / "history" if on_disk else None, turns) == expected


def test_a_history_itself_stays_in_one_piece_and_a_refusal_changes_nothing() -> None:
    with md.start(query()) as run:
        run.push("a", rows(0))
        with pytest.raises(QueryError, match="it keeps one history"):
            run.split("kept", 2)
        run.push("a", rows(40))
        run.finish()
        assert run.view("kept").num_rows == 80
