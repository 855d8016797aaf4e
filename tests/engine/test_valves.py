"""What a valve drops: the least important, by whole windows, by chance; however trains are cut."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import medusa as md
from medusa.engine.fragment import Fragment
from medusa.engine.overload.controller import OverloadController
from medusa.engine.overload.drop_operator import BLOCK
from tests.engine.test_shedding import LOSS, VALUE, batch, out, pushed, start


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 1.0])
def test_the_least_important_rows_go_first(share: float) -> None:
    q, s = start()
    q.sink("o", s, qos=VALUE)
    fragment = Fragment(q.graph)
    shedder = OverloadController(fragment)
    [valve] = shedder.valves
    chance = np.random.default_rng(1)
    values = [None, float("nan"), *chance.uniform(0, 100, 20_000).tolist()]
    for start_ in range(0, len(values), 2000):
        valve.set(share)
        pushed(fragment, batch([(n, 0, v) for n, v in enumerate(values[start_ : start_ + 2000], start_)]))
    kept = out(fragment, "o")
    left = [row["v"] for row in kept]
    assert valve.seen == len(values) == len(left) + valve.shed
    assert valve.shed == pytest.approx(share * len(values), rel=0.03, abs=1)
    if share:
        known = [v for v in left if v is not None and v == v]
        assert len(left) == len(known)  # null and NaN are the first to go
        learnt = [row["v"] for row in kept if row["ts"].microsecond >= BLOCK]  # what share each value has
        assert min(learnt, default=100) >= 100 * share - 4
    lost = valve.look()
    assert float(lost.at(0.5)) == pytest.approx(0.25, abs=0.03)  # the lower half holds a quarter


def test_random_drops_follow_the_seed_and_nothing_else() -> None:
    def kept(seed: int, cuts: list[int]) -> list[int]:
        q, s = start()
        q.sink("o", s, qos=LOSS)
        fragment = Fragment(q.graph)
        shedder = OverloadController(fragment, seed=seed)
        shedder.valves[0].set(0.4)
        rows = [(n, n, 1.0) for n in range(5000)]
        for begin, end in itertools.pairwise([0, *cuts, 5000]):
            pushed(fragment, batch(rows[begin:end]))
        return [row["k"] for row in out(fragment, "o")]

    assert kept(1, []) == kept(1, [7, 1000, 1001])
    assert kept(1, []) != kept(2, [])
    assert len(kept(1, [])) == pytest.approx(3000, abs=120)


@pytest.mark.parametrize("how", ["value", "windows", "random"])
def test_what_is_dropped_does_not_depend_on_how_trains_are_cut(how: str) -> None:
    """With shares that change after fixed rows: so a restored run drops the same, however rows come again."""
    chance = np.random.default_rng(3)
    rows = [(n - n * 7 % 3, n, float(v)) for n, v in enumerate(chance.uniform(0, 100, 4000))]
    shares = {700: 0.3, 1500: 0.6, 1501: 0.2, 2600: 0.9, 3000: 0.5}

    def kept(cuts: set[int]) -> tuple[list[Any], dict[str, Any]]:
        q, s = start()
        if how == "windows":
            q.sink("o", s.window(16).aggregate(n=md.count()), qos=LOSS)
        else:
            q.sink("o", s, qos=VALUE if how == "value" else LOSS)
        fragment = Fragment(q.graph)
        [valve] = OverloadController(fragment).valves
        assert valve.place.how == how
        for begin, end in itertools.pairwise(sorted({0, 4000, *cuts, *shares})):
            if begin in shares:
                valve.set(shares[begin])
            pushed(fragment, batch(rows[begin:end]))
        state = valve.save()
        state.pop("sums", None)  # only for the road map; sums of floats in another order
        return out(fragment, "o"), state

    whole = kept(set())
    assert 0 < len(whole[0]) < len(rows)
    for size in (17, 333, 1024):
        assert kept(set(range(0, 4000, size))) == whole
