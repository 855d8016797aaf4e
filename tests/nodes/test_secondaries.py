"""What one node has is spread over who stands by, so that the longest recovery is shortest."""

from __future__ import annotations

from collections import Counter
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

import medusa as md
from medusa.nodes.placement.estimating import traffic_of
from medusa.nodes.placement.placement import cut
from medusa.nodes.placement.secondaries import UNKNOWN_WORK, Unguarded, recovery_work, spread
from medusa.nodes.placement.standby_plan import StandbyNode, StandbyWish, with_standby
from medusa.query.boxes import Graph

SCHEMA = {"k": "int64", "text": "string"}


def unguarded(owner, work, candidates, cost=0.1):
    return Unguarded(owner=owner, work=work, cost=cost, candidates=tuple(candidates))


def longest(fragments, chosen, falls_on=()):
    """The largest sum of work that falls on one node after the loss of one other."""
    sums = Counter(dict(falls_on))
    for each, name in zip(fragments, chosen, strict=True):
        sums[each.owner, name] += each.work
    return max(sums.values(), default=0)


@st.composite
def cases(draw):
    """Fragments of up to three owners; all other nodes may stand by for each."""
    nodes = ["a", "b", "c", "d"][: draw(st.integers(2, 4))]
    works = st.integers(1, 12)
    owned = draw(st.lists(st.tuples(st.sampled_from(nodes), works), min_size=1, max_size=6))
    return [unguarded(owner, work, [name for name in nodes if name != owner]) for owner, work in owned]


loads_of = st.fixed_dictionaries({name: st.floats(0, 1) for name in "abcd"})


@given(cases(), loads_of)
def test_the_longest_recovery_is_within_the_known_bound_of_the_best(fragments, loads):
    chosen = spread(fragments, falls_on={}, loads=loads)
    assert all(name in each.candidates for name, each in zip(chosen, fragments, strict=True))
    best = min(longest(fragments, each) for each in product(*(each.candidates for each in fragments)))
    others = len(fragments[0].candidates)
    assert longest(fragments, chosen) <= best * (4 / 3 - 1 / (3 * others)) + 1e-9


@given(cases(), loads_of, st.dictionaries(st.tuples(*[st.sampled_from("abcd")] * 2), st.integers(1, 9)))
def test_what_falls_on_nodes_already_counts(fragments, loads, falls_on):
    chosen = spread(fragments, falls_on=falls_on, loads=loads)
    falls_on = {key: work for key, work in falls_on.items() if key[0] != key[1]}
    made = [product(*(each.candidates for each in fragments))]
    best = min(longest(fragments, each, falls_on) for each in made[0])
    assert longest(fragments, chosen, falls_on) <= 2 * best


@given(cases(), loads_of)
def test_the_choice_is_the_same_each_time(fragments, loads):
    backwards = dict(reversed(loads.items()))
    assert spread(fragments, falls_on={}, loads=loads) == spread(fragments, falls_on={}, loads=backwards)


def test_large_ones_are_kept_apart_and_small_ones_fill_up():
    of = [unguarded("a", work, "bc") for work in (1, 6, 1, 5, 1)]
    chosen = spread(of, falls_on={}, loads={})
    assert chosen[1] != chosen[3]
    assert longest(of, chosen) == 7


def test_of_equals_the_least_busy_is_chosen_and_what_it_stands_by_for_counts():
    of = [unguarded("a", 1, "cd", cost=0.5), unguarded("b", 1, "cd", cost=0.5)]
    assert spread(of, falls_on={}, loads={"c": 0.2, "d": 0.1}) == ["d", "c"]
    assert spread(of, falls_on={}, loads={"c": 0.9, "d": 0.1}) == ["d", "d"], "owners are lost one at a time"


def test_a_busy_node_is_chosen_where_recovery_is_shorter_by_it():
    of = [unguarded("a", 1, "bc"), unguarded("a", 1, "bc")]
    assert sorted(spread(of, falls_on={}, loads={"b": 0.0, "c": 0.9})) == ["b", "c"]


def test_once_as_many_vote_as_may_no_other_is_chosen_unless_none_of_those_can():
    of = [unguarded("a", 3, "bcd"), unguarded("a", 2, "bcd"), unguarded("a", 1, "d")]
    assert spread(of, falls_on={}, loads={}, voters="ab", voters_max=2) == ["b", "b", "d"]
    assert spread(of, falls_on={}, loads={}, voters="ab", voters_max=3) == ["b", "c", "d"]


# --- of a plan ----------------------------------------------------------------------------------------


def many(count) -> Graph:
    """As many sources and filters as that; texts come to the first."""
    q = md.Query("q")
    for number in range(count):
        rows = q.source(f"rows{number}", SCHEMA if number == 0 else {"k": "int64"}, time=None)
        q.sink(f"out{number}", rows.filter("k > 0", name=f"some{number}"))
    return q.graph


def planned(graph, at, standby, nodes):
    wish = StandbyWish(standby=tuple(standby.items()))
    return with_standby(cut(graph, at), graph, wish, here="w", nodes=nodes)


def known(*names, **hosts):
    return {name: StandbyNode(name=name, host=hosts.get(name, name)) for name in names}


def guarded_by(plan):
    return {each.name: each.standby for each in plan.guarded()}


# Four fragments at one node: each source is read by a filter elsewhere, so each is a fragment of its own.
AT = {"a": [f"rows{n}" for n in range(4)], "w": [f"some{n}" for n in range(4)]}
AT_TWO = {"a": ["rows0", "rows1"], "w": ["some0", "some1"]}


def test_what_one_node_has_is_guarded_by_several():
    plan = planned(many(4), AT, {"a": ()}, known("w", "a", "b", "c"))
    counts = Counter(names for each in plan.guarded() if each.node == "a" for names in each.standby)
    assert sorted(counts.values()) == [1, 1, 2]


def test_the_work_of_a_fragment_is_what_it_is_fed_or_one_where_that_is_unknown():
    graph = many(2)
    first, second = cut(graph, {"a": ["rows0", "some0"], "b": ["rows1", "some1"]}).fragments
    traffic = traffic_of(graph)
    assert recovery_work(first, graph, traffic) > recovery_work(second, graph, traffic) > UNKNOWN_WORK
    silent = traffic_of(graph, rates={"rows0": 0.0, "rows1": 0.0})
    assert recovery_work(first, graph, silent) == UNKNOWN_WORK


def test_one_on_another_machine_comes_before_a_shorter_recovery():
    nodes = known("w", "a", "near", "far", near="a", w="a")
    plan = planned(many(4), AT, {"a": ()}, nodes)
    assert {name for each in plan.guarded() for name in each.standby} == {"far"}
    assert planned(many(4), AT, {"a": ()}, known("w", "a", "near", near="a", w="a")).guarded()


def test_who_is_named_first_for_others_has_its_share_already():
    parts = [each.name for each in cut(many(2), AT_TWO).fragments if each.node == "a"]
    assert len(parts) == 2
    plan = planned(many(2), AT_TWO, {parts[0]: ("b", "c"), parts[1]: ()}, known("b", "c", "w", "a"))
    assert guarded_by(plan)[parts[1]] == ("c",)
