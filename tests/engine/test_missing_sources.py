"""How far sources that nobody hears hold boxes back: what a fork asks, of whatever sources."""

from __future__ import annotations

import medusa as md
from medusa.elements import END_US, Boundary
from medusa.engine.fragment import Fragment
from medusa.engine.operators.source import TIME_MAX_US

SCHEMA = {"ts": "timestamp", "k": "int64"}


def sources(q: md.Query, *names: str) -> list[md.Stream]:
    return [q.source(name, SCHEMA, time="ts") for name in names]


def at(fragment: Fragment, **boundaries: int) -> Fragment:
    for name, time_us in boundaries.items():
        fragment.feed(name, Boundary(time_us))
    return fragment


def asked(fragment: Fragment, *silent: str) -> dict[str, int]:
    """By source, what is asked for."""
    found: dict[str, int] = {}
    for source, boundary in fragment.held_up(silent, missing=True):
        assert source not in found
        assert isinstance(boundary, Boundary)
        found[source] = boundary.time_us
    return found


def settled(fragment: Fragment, *silent: str) -> dict[str, int]:
    """All that is asked for, one question after the other; by source the last."""
    found: dict[str, int] = {}
    while now := asked(fragment, *silent):
        at(fragment, **now)
        found |= now
    return found


def test_any_source_may_be_missing_and_is_asked_for_what_the_others_have() -> None:
    q = md.Query("q")
    one, two = sources(q, "one", "two")
    q.sink("all", one.sunion(two, bucket=5))
    fragment = at(Fragment(q.graph), one=10, two=30)
    assert asked(fragment) == {}
    assert asked(fragment, "two") == {}, "it holds nobody back"
    assert asked(fragment, "one") == {"one": 30}
    assert asked(fragment, "one", "two") == {}, "there is nobody to wait"
    assert asked(at(fragment, one=30), "one") == {}


def test_missing_sources_do_not_wait_for_each_other() -> None:
    q = md.Query("q")
    one, two, three = sources(q, "one", "two", "three")
    q.sink("all", one.sunion(two, three, bucket=5))
    fragment = at(Fragment(q.graph), one=10, two=20, three=30)
    assert asked(fragment, "one", "two") == {"one": 30, "two": 30}


def test_what_has_ended_waits_for_nobody() -> None:
    q = md.Query("q")
    one, two, three = sources(q, "one", "two", "three")
    q.sink("all", one.sunion(two, three, bucket=5))
    fragment = at(Fragment(q.graph), one=10, two=20, three=END_US)
    assert asked(fragment, "one") == {"one": 20}
    assert asked(fragment, "one", "three") == {"one": 20}


def test_behind_what_has_ended_rows_wait_for_who_is_missing() -> None:
    """Were it there it would promise more and more: as much as can be promised without an end."""
    q = md.Query("q")
    one, two, three = sources(q, "one", "two", "three")
    q.sink("all", one.sunion(two, three, bucket=5))
    fragment = at(Fragment(q.graph), one=10, two=END_US, three=END_US)
    assert settled(fragment, "one") == {"one": TIME_MAX_US}
    assert asked(fragment, "two") == {}, "it isn't missing"
    assert asked(at(Fragment(q.graph), one=10, two=20, three=END_US), "one", "two") == {
        "one": TIME_MAX_US,
        "two": TIME_MAX_US,
    }
    one_alone = at(Fragment(q.graph), one=10, two=20, three=30)
    assert asked(one_alone, "one", "two", "three") == {}


def test_rows_that_have_ended_pass_one_box_after_the_other() -> None:
    q = md.Query("q")
    one, two, three = sources(q, "one", "two", "three")
    inner = one.sunion(two, bucket=5)
    q.sink("all", inner.join(three, on="k", within=5))
    fragment = at(Fragment(q.graph), one=END_US, two=10, three=20)
    assert settled(fragment, "two") == {"two": TIME_MAX_US}
    assert settled(fragment, "two", "three") == {"three": TIME_MAX_US}


def test_a_source_is_asked_where_it_meets_one_that_is_heard() -> None:
    """Behind that box both are held by the one that is heard."""
    q = md.Query("q")
    one, two, three = sources(q, "one", "two", "three")
    inner = one.sunion(two, bucket=5)
    q.sink("all", inner.join(three, on="k", within=5))
    fragment = at(Fragment(q.graph), one=10, two=20, three=50)
    assert settled(fragment, "one") == {"one": 20}
    assert settled(fragment, "one", "two") == {"one": 50, "two": 50}


def test_missing_sources_that_meet_are_asked_by_the_box_behind() -> None:
    q = md.Query("q")
    one, two, three = sources(q, "one", "two", "three")
    left = one.union(two).window(10).aggregate(n=md.count())
    right = three.window(10).aggregate(m=md.count())
    q.sink("all", left.join(right, on="window"))
    fragment = at(Fragment(q.graph), one=10, two=20, three=55)
    found = settled(fragment, "one", "two")
    assert set(found) == {"one", "two"}
    [box] = [box for box in fragment.boxes.values() if box.kind == "window_join"]
    assert min(box.inputs_us) == box.inputs_us[1], "only the source that is heard holds it"


def test_a_source_that_two_boxes_ask_is_asked_once_for_the_larger() -> None:
    q = md.Query("q")
    one, two, three = sources(q, "one", "two", "three")
    q.sink("first", one.sunion(two, bucket=5))
    q.sink("second", one.sunion(three, bucket=5))
    assert asked(at(Fragment(q.graph), one=10, two=20, three=30), "one") == {"one": 30}
    assert asked(at(Fragment(q.graph), one=10, two=30, three=20), "one") == {"one": 30}


def test_sources_without_time_are_never_asked() -> None:
    q = md.Query("q")
    one, two = (q.source(name, {"k": "int64"}, time=None) for name in ("one", "two"))
    q.sink("all", one.union(two))
    assert asked(at(Fragment(q.graph), one=END_US), "two") == {}
