"""A stream read as a table: it shows what the simplest thing shows, whatever comes in whatever order."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medusa.elements import Kind, Train
from medusa.errors import LinkError
from medusa.runtime.client import followed_table
from medusa.runtime.client.followed_table import CorrectedRows

SCHEMA = pa.schema({"k": pa.string(), "j": pa.int64(), "v": pa.float64()})
TIME = pa.timestamp("us", tz="UTC")


class Model:
    """Every row that came, looked at anew each time."""

    def __init__(self, key, *, timed):
        self.key, self.timed = key, timed
        self.rows, self.guesses = [], []
        self.fork, self.boundary_us = 0, -100

    def show(self):
        """(rows, how many are tentative)."""
        valid = [row for row, time_us in self.guesses if not self.timed or time_us >= self.boundary_us]
        last = {}
        for row, tentative in [*((row, False) for row in self.rows), *((row, True) for row in valid)]:
            key = tuple(row[name] for name in self.key)
            last.pop(key, None)
            last[key] = row, tentative
        return [row for row, _ in last.values()], sum(tentative for _, tentative in last.values())


def train(rows, times, kind):
    return Train(
        batch=pa.RecordBatch.from_pylist(rows, SCHEMA),
        times=None if times is None else pa.array(times, TIME),
        kind=kind,
    )


ROW = st.fixed_dictionaries(
    {
        "k": st.sampled_from(["a", "b", "", None]),
        "j": st.integers(0, 2) | st.none(),
        "v": st.floats(allow_nan=False),
    }
)
ROWS = st.lists(st.tuples(ROW, st.integers(0, 20)), min_size=1, max_size=5)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("stable"), ROWS),
        st.tuples(st.just("tentative"), ROWS, st.integers(0, 3)),
        st.tuples(st.just("promised"), st.integers(0, 20)),
        st.tuples(st.just("turned"), st.integers(0, 3)),
        st.tuples(st.just("show")),
    ),
    max_size=40,
)


@pytest.fixture(params=[0, 3, 1 << 16], ids=lambda rows: f"{rows} rows wait")
def pending_rows(request, monkeypatch):
    monkeypatch.setattr(followed_table, "PENDING_ROWS", request.param)


@pytest.mark.usefixtures("pending_rows")
@pytest.mark.parametrize("key", [("k",), ("j", "k")], ids=" ".join)
@pytest.mark.parametrize("timed", [True, False], ids=["timed", "without time"])
def test_it_shows_what_a_model_that_keeps_everything_shows(key, timed):
    @given(steps=STEPS)
    @settings(max_examples=40, deadline=None)
    def run(steps):
        table, model = CorrectedRows(SCHEMA, list(key)), Model(key, timed=timed)
        for what, *about in [*steps, ("show",)]:
            if what in ("stable", "tentative"):
                rows, times = zip(*about[0], strict=True)
                # The stream promises nothing of rows that come.
                came = train(rows, times if timed else None, Kind(what))
                if what == "stable":
                    model.rows += rows
                    table.stable(came)
                else:
                    if about[1] and about[1] == model.fork:
                        model.guesses += zip(rows, times, strict=True)
                    table.tentative(came, about[1])
            elif what == "promised":
                model.boundary_us = max(model.boundary_us, about[0])
                table.promised(about[0])
            elif what == "turned":
                if about[0] != model.fork:
                    model.fork, model.guesses = about[0], []
                table.turned(about[0])
            else:
                rows, tentative = model.show()
                assert table.arrow().to_pylist() == rows
                assert table.tentative_rows == tentative
                assert table.arrow().schema == SCHEMA

    run()


def test_a_row_at_the_time_that_was_promised_is_not_void_yet_and_one_below_is():
    table = CorrectedRows(SCHEMA, "k")
    table.turned(1)
    table.tentative(train([{"k": "a", "j": 1, "v": 1.0}], [9], Kind.TENTATIVE), 1)
    table.promised(9)
    assert table.tentative_rows == 1
    table.promised(10)
    assert (table.tentative_rows, table.arrow().num_rows) == (0, 0)
    table.tentative(train([{"k": "a", "j": 1, "v": 1.0}], [9], Kind.TENTATIVE), 1)
    assert table.tentative_rows == 0, "one that comes late is void at once"


@pytest.mark.parametrize("timed", [True, False])
def test_what_can_never_show_again_is_not_kept(timed, monkeypatch):
    monkeypatch.setattr(followed_table, "PENDING_ROWS", 10)
    table = CorrectedRows(SCHEMA, "k")
    table.turned(1)
    for turn in range(1000):
        rows = [{"k": "ab"[turn % 2], "j": turn, "v": 0.0}]
        table.tentative(train(rows, [turn] if timed else None, Kind.TENTATIVE), 1)
        table.stable(train(rows, [turn] if timed else None, Kind.STABLE))
    assert table._guess_rows <= 20
    assert table._pending_rows <= 20
    assert [row["j"] for row in table.arrow().to_pylist()] == [998, 999]


@pytest.mark.parametrize(
    ("key", "says"), [("kk", "did you mean 'k'"), ([], "none twice"), (["k", "k"], "none twice")]
)
def test_what_is_no_key_is_refused(key, says):
    with pytest.raises(LinkError) as caught:
        CorrectedRows(SCHEMA, key)
    assert caught.value.code == "link.argument"
    assert says in f"{caught.value.message} {caught.value.hint}"
