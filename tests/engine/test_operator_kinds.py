"""What each kind of box is, restated by hand: a kind that is added, or that changes, shows here."""

from __future__ import annotations

import pytest

from medusa.engine.operator_kinds import OPERATORS
from medusa.query.boxes import KINDS, BoxData
from medusa.query.ids import kind_of
from medusa.spark.support import WAYS, Way

# kind: (how it is shared, Spark's way, its state is cut by keys, its state may lie on disk,
#        more rows may make it hold more)
TABLE: dict[str, tuple[str, Way, bool, bool, bool]] = {
    "source": ("one", Way.SOURCE, False, False, False),
    "filter": ("rows", Way.ROWS, False, False, False),
    "select": ("rows", Way.ROWS, False, False, False),
    "with_columns": ("rows", Way.ROWS, False, False, False),
    "union": ("one", Way.ORDER, False, False, False),
    "aggregate": ("keys", Way.KEYS, True, False, True),
    "join": ("keys", Way.KEYS, True, True, True),
    "window_join": ("keys", Way.KEYS, True, True, True),
    "asof_join": ("keys", Way.KEYS, True, True, True),
    "route": ("rows", Way.ROWS, False, False, False),
    "random_drop": ("one", Way.ONE, False, False, False),
    "semantic_drop": ("rows", Way.ROWS, False, False, False),
    "window_drop": ("rows", Way.ROWS, False, False, False),
    "distinct": ("keys", Way.KEYS, True, True, True),
    "sunion": ("one", Way.ORDER, False, False, True),
    "bsort": ("one", Way.ONE, False, False, True),
    "wsort": ("one", Way.ONE, False, False, True),
    "resample": ("one", Way.ONE, False, False, True),
    "process": ("keys", Way.ONE, True, False, True),
    "table": ("keys", Way.ONE, True, True, True),
    "lookup": ("keys", Way.ONE, True, True, True),
    "session": ("keys", Way.KEYS, True, True, True),
    "window_rows": ("keys", Way.KEYS, True, False, True),
    "window_values": ("one", Way.ONE, False, False, True),
    "running": ("keys", Way.KEYS, True, True, True),
    "top": ("one", Way.ONE, False, False, True),
    "connection_point": ("one", Way.PASS, False, False, True),
    "key_router": ("one", Way.REFUSED, False, False, True),
    "ordered_merge": ("one", Way.REFUSED, False, False, True),
    "sink": ("one", Way.SINK, False, False, False),
}


def test_every_kind_runs_and_is_in_the_table() -> None:
    assert set(OPERATORS) == set(KINDS)
    assert len(KINDS) == 31
    assert {kind_of(kind) for kind in KINDS} == {*TABLE, "apply"} == set(WAYS)
    assert WAYS["apply"] is Way.ONE


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind_of(kind) in TABLE], ids=kind_of)
def test_a_kind_is_as_the_table_says(kind: type[BoxData]) -> None:
    sharing, way, cut, spills, keeps_state = TABLE[kind_of(kind)]
    runs = OPERATORS[kind]
    assert (kind.sharing, WAYS[kind_of(kind)]) == (sharing, way)
    assert (runs.repartition is not None, runs.spill is not None) == (cut, spills)
    held = kind.keeps_state
    assert (held is not False) == keeps_state


@pytest.mark.parametrize("kind", KINDS, ids=kind_of)
def test_what_is_split_by_keys_can_cut_its_state(kind: type[BoxData]) -> None:
    assert (kind.sharing == "keys") == (OPERATORS[kind].repartition is not None)
    whole = kind.stays_whole
    assert kind.sharing != "one" or (isinstance(whole, str) and whole), "it says why it stays whole"
