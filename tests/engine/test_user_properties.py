"""Apply, process and tables give what their oracles give, wherever batches are cut, rows come late, or
state is taken out and put back."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import medusa as md
import tests.oracle.user  # noqa: F401  registers the oracles
from tests.engine.queries import SCHEMA, inputs
from tests.engine.test_properties import Driver, check
from tests.engine.user_functions import COPIES, DOUBLED, OUT, STATE, Alarms, Count, Session, copies, doubled
from tests.oracle.query import answer

EXAMPLES = 40

Build = Callable[[st.DrawFn, md.Query, md.Stream, md.Stream], None]

OPERATORS = [Session, Count, Alarms]
ACCOUNT = {"k": "int64", "total": "float64", "s": "utf8", "seen": "int64", "odd": "bool"}
FROM = {
    "k": [1, None, 2],
    "total": [1.5, None, 0.0],
    "s": ["x", None, "long text"],
    "seen": [5, 6, None],
    "odd": [True, None, False],
}


def apply(draw: st.DrawFn, q: md.Query, a: md.Stream, b: md.Stream) -> None:
    q.sink("copies", a.apply(copies, COPIES))
    q.sink("doubled", b.filter("n <> 3").apply(doubled, DOUBLED))
    counted = a.apply(copies, COPIES).window(10).group_by("copy").aggregate(n=md.count())
    q.sink("counts", counted)


def process(draw: st.DrawFn, q: md.Query, a: md.Stream, b: md.Stream) -> None:
    operator = draw(st.sampled_from(OPERATORS))
    q.sink("one", a.process(operator, OUT, by="k", state=STATE))

    q.sink("other", b.filter("n > 1").process(draw(st.sampled_from(OPERATORS)), OUT, by="k", state=STATE))


def several(draw: st.DrawFn, q: md.Query, a: md.Stream, b: md.Stream) -> None:
    operator = draw(st.sampled_from(OPERATORS))
    inputs = {"a": a, "b": b, "c": a.filter("n > 3")}
    q.sink("both", md.process(operator, inputs, OUT, by="k", state=STATE))


def tables(draw: st.DrawFn, q: md.Query, a: md.Stream, b: md.Stream) -> None:
    given = draw(st.sampled_from([None, FROM]))
    expire = draw(st.sampled_from([None, 1, 5, 20]))
    acc = q.table("acc", key="k", schema=ACCOUNT, from_=given, expire=expire)
    insert = draw(st.sampled_from([True, False, {"total": "v", "s": "'new'", "odd": "n % 2 = 1"}]))
    q.sink("before", b.lookup(acc, suffix="_then"))
    changed = {"total": "table.total + v", "seen": "table.seen + 1", "s": "s"}
    u = a.update(acc, set=changed, insert=insert)
    q.sink("u", u)
    if draw(st.booleans()):
        q.sink("w", b.filter("n < 7").update(acc, set={"seen": "n", "odd": "n = 2"}))
    if draw(st.booleans()):
        q.sink("d", b.filter("n % 3 = 1").delete(acc))
    q.sink("found", a.lookup(acc, how=draw(st.sampled_from(["left", "inner"])), suffix="_now"))
    q.sink("again", u.lookup(acc, how="inner", suffix="_now").filter("k is not null"))


def two_keys(draw: st.DrawFn, q: md.Query, a: md.Stream, b: md.Stream) -> None:
    acc = q.table("acc", key=["who", "x"], schema={"n": "int64", "x": "float64", "who": "utf8"}, expire=9)
    q.sink("u", a.update(acc, set={"n": "n"}, by={"who": "s", "x": "v"}))
    q.sink("found", b.lookup(acc, by=["s", "v"]))
    fixed = q.table("fixed", key="x", schema={"x": "float64"}, from_={"x": [0.0, None, float("nan")]})
    q.sink("in", a.lookup(fixed, how="inner", by="v"))


@pytest.mark.filterwarnings("ignore::medusa.errors.DeadRowWarning")
@pytest.mark.parametrize("build", [apply, process, several, tables, two_keys])
@settings(max_examples=EXAMPLES)
@given(st.data())
def test_the_oracle_agrees(build: Build, data: st.DataObject) -> None:
    q = md.Query("q")
    a, b = (q.source(name, SCHEMA, slack=data.draw(st.sampled_from([0, 3, 10, 40]))) for name in "ab")
    data.draw(st.composite(lambda draw: build(draw, q, a, b))())
    events = data.draw(inputs(["a", "b"]))
    cuts = data.draw(st.sampled_from([[], [1], [2, 3, 7], list(range(1, 12))]))
    reload_at = data.draw(st.integers(-1, len(events)))
    driver = Driver(q)
    for number, event in enumerate(events):
        if number == reload_at:
            driver.reload()
        driver.feed(event, cuts)
        if data.draw(st.booleans()):
            driver.drain()
    if reload_at == len(events):
        driver.reload()
    driver.fragment.finish()
    driver.drain()
    check(driver.tables(), answer(q.graph, events))
