"""Two publishers and a union before a window: each row counts once, whatever is killed on the way."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

import medusa as md
from tests.system.nodes import PATIENT_READERS, Nodes

pytestmark = pytest.mark.system

ROWS = 4_800
STEP = 300
LIMITS = f'checkpoint_every = "100ms"\n{PATIENT_READERS}'
SCHEMA = {"ts": "timestamp[us, UTC]", "k": "utf8", "v": "int64"}


def query() -> md.Query:
    q = md.Query("met")
    left, right = (q.source(name, SCHEMA, time="ts") for name in ("left", "right"))
    both = left.union(right, name="both")
    q.sink("rows", both)
    per_k = both.window("1s").group_by("k").aggregate(n=md.count(), s=md.sum("v"), name="per_k")
    q.sink("out", per_k)
    return q


def placed(home: str) -> dict[str, list[str]]:
    """The windows at ``home``, all else at ``one``."""
    at = {"one": ["left", "right", "both", "rows"]}
    return {**at, home: [*at.get(home, ()), "per_k", "out"]}


def rows(seed: int) -> pa.Table:
    dice = np.random.default_rng(seed)
    return pa.table(
        {
            "ts": pa.array(np.sort(dice.integers(0, 24_000_000, ROWS))).cast(pa.timestamp("us", "UTC")),
            "k": pa.array([f"k{i}" for i in dice.integers(0, 9, ROWS)]),
            "v": pa.array(dice.integers(-50, 50, ROWS), pa.int64()),
        }
    )


def counted(tables: list[pa.Table]) -> dict[tuple[int, str], tuple[int, int]]:
    """By brute force: (end of the window in seconds, key) -> rows and their sum."""
    n: Counter[tuple[int, str]] = Counter()
    s: Counter[tuple[int, str]] = Counter()
    for table in tables:
        for ts, k, v in zip(*(table.column(i).to_pylist() for i in ("ts", "k", "v")), strict=True):
            key = (int(ts.timestamp()) + 1, k)
            n[key] += 1
            s[key] += v
    return {key: (n[key], s[key]) for key in n}


@pytest.fixture
def nodes(tmp_path_factory):
    made = Nodes(tmp_path_factory.mktemp("n"), ["one", "two"], limits=LIMITS)
    yield made
    made.close()


@pytest.mark.parametrize(
    ("victim", "home"),
    [
        ("one", "one"),
        pytest.param("one", "two", marks=[pytest.mark.full, pytest.mark.issue(5)]),
        pytest.param("two", "two", marks=[pytest.mark.full, pytest.mark.issue(5)]),
    ],
)
def test_windows_behind_a_union_after_kills(nodes, victim, home):
    """The union at one node; what reads its order there, or at another."""
    tables = {"left": rows(1), "right": rows(2)}
    nodes.start()
    with md.connect(nodes.addresses["one"], timeout="30s") as one:
        one.deploy(query(), at=placed(home))
        clients = {name: md.connect(nodes.addresses["one"], timeout="30s") for name in tables}
        with (
            md.connect(nodes.addresses[home], timeout="30s") as other,
            other.subscribe("met.out", from_="oldest") as out,
            one.subscribe("met.rows", from_="oldest") as both,
        ):
            for begin in range(0, ROWS, STEP):
                for name, client in clients.items():
                    client.publish(f"met.{name}", tables[name].slice(begin, STEP))
                if begin in (900, 2_700):
                    nodes.kill(victim)
                    nodes.start(victim)
            for name, client in clients.items():
                client.finish(f"met.{name}")
                client.flush("60s")
                client.close()
            got, order = out.table("60s"), both.table("60s")
            assert out.lost_rows == both.lost_rows == 0
    ends = [int(end.timestamp()) for end in got.column("window_end").to_pylist()]
    found = dict(
        zip(
            zip(ends, got.column("k").to_pylist(), strict=True),
            zip(got.column("n").to_pylist(), got.column("s").to_pylist(), strict=True),
            strict=True,
        )
    )
    assert len(found) == len(got)
    assert found == counted(list(tables.values()))
    # Windows give their groups in the order of first appearance: it is that which the reader saw.
    first: dict[int, dict[str, None]] = {}
    stamps, keys = order.column("ts").to_pylist(), order.column("k").to_pylist()
    for ts, k in zip(stamps, keys, strict=True):
        first.setdefault(int(ts.timestamp()) + 1, {})[k] = None
    assert [(end, k) for end in sorted(first) for k in first[end]] == list(
        zip(ends, got.column("k").to_pylist(), strict=True)
    )
