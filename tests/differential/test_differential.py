"""Random queries over random rows: the answer doesn't depend on cuts, threads, checkpoints and restores, and
is that of the slow oracle, row by row, and that of DuckDB. See docs/testing-ourselves.md.
"""

from __future__ import annotations

from collections import Counter

import pytest

from tests.differential import sqltext
from tests.differential.aggregates import ANY, NUMBERS
from tests.differential.check import SAVED_EVERY, THREADS, many
from tests.differential.data import BASE, MORE
from tests.differential.growers_windows import HOWS
from tests.differential.pool import KINDS

CASES = 320
BLOCK = 40
FULL_BLOCKS = 40
FULL_BLOCK = 500

pytestmark = [
    pytest.mark.filterwarnings("ignore::medusa.errors.DeadRowWarning"),
    pytest.mark.filterwarnings("ignore::medusa.errors.LateWarning"),
]
drawn: Counter[str] = Counter()


def test_a_few_answers_depend_on_the_rows_only() -> None:
    """What `make test` runs; all, and whether they draw everything, is left to `make test-ci`."""
    assert many(range(BLOCK // 2))["mode.restored"] >= BLOCK // 2


@pytest.mark.parametrize("first", range(0, CASES, BLOCK))
def test_the_answer_depends_on_the_rows_only(first: int) -> None:
    found = many(range(first, first + BLOCK))
    assert found["mode.restored"] >= BLOCK, "each case also runs with a restore in the middle"
    drawn.update(found)
    drawn["cases"] += BLOCK


def test_everything_is_drawn() -> None:
    """The generator can't silently stop covering a kind of box, an aggregate or a way of running."""
    if drawn["cases"] < CASES:
        pytest.skip("needs all of the cases above")
    least = {
        **dict.fromkeys([f"box.{kind}" for kind in KINDS], 8),
        **dict.fromkeys([f"sql.{kind.__name__}" for kind in sqltext.KINDS], 4),
        **dict.fromkeys([f"aggregate.{name}" for name in (*ANY, *NUMBERS, "lag", "user")], 8),
        **dict.fromkeys([f"join.{how}" for how in HOWS], 3),
        **dict.fromkeys([f"type.{type}" for type in (*MORE, *BASE.values())], 15),
        **dict.fromkeys([f"mode.threads={number}" for number in THREADS], 60),
        **{"mode.restored": CASES, "mode.collected": 50, "mode.saved": CASES // SAVED_EVERY},
        **{"duckdb.text": CASES // 4, "duckdb.sinks": CASES, "data.promises": 40, "data.late": 80},
        **{
            "tap.late": 40,
            "window.early": 10,
            "window.sliding": 10,
            "source.partition": 10,
            "source.partitions": 10,
            "source.ahead": 10,
            "source.untimed": 8,
        },
        **{"drop.where": 3, "drop.rate": 3, "drop.window": 3, "data.rows": 20 * CASES},
    }
    short = {name: drawn[name] for name, count in least.items() if drawn[name] < count}
    assert not short
    assert drawn["data.empty"] < CASES // 10


@pytest.mark.full
@pytest.mark.issue(3)
@pytest.mark.parametrize("block", range(FULL_BLOCKS))
def test_many_more(block: int) -> None:
    """20,000 cases, in blocks that ``make test-full`` leaves out when they have passed."""
    start = 100_000 + block * FULL_BLOCK
    assert many(range(start, start + FULL_BLOCK))["mode.restored"] >= FULL_BLOCK
