"""Two independent roads to the answers agree with each other and with the published figures."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from medusa.apps.workloads import netmon, netmon_check
from medusa.apps.workloads.netmon_check import Row

Answers = dict[str, list[Row]]


@pytest.fixture(scope="module")
def trace() -> pa.Table:
    return netmon.load_trace()


@pytest.fixture(scope="module")
def answers(trace: pa.Table) -> Answers:
    return netmon_check.by_python(trace)


def test_the_published_figures(answers: Answers) -> None:
    groups, heavy, wide, both, clusters = (answers[name] for name in netmon.SINKS)
    assert len({row[0] for row in groups}) == 17
    assert [len(rows) for rows in (groups, heavy, wide, both, clusters)] == [33_531, 144, 108, 59, 53]
    assert len({row[1] for row in both}) == 12
    assert len({row[1] for row in clusters}) == 4
    assert sum(row[2] for row in heavy) == 58_093
    assert sum(row[2] for row in both) == 24_556
    assert sum(row[3] for row in both) == 13_351
    assert sum(row[2] for row in clusters) == 13_600
    assert max(both, key=lambda row: row[2]) == (21_894_700 * 60_000_000, "147.32.84.59", 1_416, 581)


def test_duckdb_agrees_with_plain_python(trace: pa.Table, answers: Answers) -> None:
    assert netmon_check.by_duckdb(trace) == answers


@pytest.mark.parametrize(
    ("address", "prefix"),
    [
        ("147.32.84.59", "147.32.84"),
        ("1.2.3", "1.2.3"),
        ("1.2.3.4.5", "1.2.3.4.5"),
        ("1234.2.3.4", "1234.2.3.4"),
        ("fe80::1.2.3.4", "fe80::1.2.3.4"),
        ("00:0c:29:5a:3b:7c", "00:0c:29:5a:3b:7c"),
        ("1.2.3.4\n", "1.2.3.4\n"),
    ],
)
@pytest.mark.parametrize("by", [netmon_check.by_python, netmon_check.by_duckdb])
def test_prefixes_of_addresses(by: Callable[[pa.Table], Answers], address: str, prefix: str) -> None:
    rows = [{"ts_us": 0, "src": address + "", "dport": None}] * 100
    # 100 flows are not heavy; one more of a neighbour makes the prefix a cluster.
    flows = pa.Table.from_pylist(
        [*rows, {"ts_us": 1, "src": prefix + ".7" if prefix != address else "other", "dport": 1}],
        schema=pa.schema([("ts_us", pa.int64()), ("src", pa.string()), ("dport", pa.int32())]),
    )
    expected = [(0, prefix, 101)] if prefix != address else []
    assert by(flows)["clusters"] == expected


def test_comparing_finds_missing_extra_and_doubled_rows(answers: Answers) -> None:
    heavy = answers["heavy"]
    changed = (*heavy[0][:2], heavy[0][2] + 1, heavy[0][3])
    results = {**answers, "heavy": [changed, *heavy[1:]], "wide": [*answers["wide"], answers["wide"][0]]}
    verdicts = {each.name: each for each in netmon_check.compare(results, answers)}
    assert (verdicts["heavy"].missing, verdicts["heavy"].extra) == (1, 1)
    assert (verdicts["wide"].missing, verdicts["wide"].extra) == (0, 1)
    assert verdicts["wide"].example == answers["wide"][0]
    assert [name for name, each in verdicts.items() if each.equal] == ["groups", "both", "clusters"]


def test_a_result_that_never_came_is_not_equal(answers: Answers) -> None:
    verdicts = netmon_check.compare({name: answers[name] for name in netmon.SINKS[:-1]}, answers)
    assert [each.equal for each in verdicts] == [True, True, True, True, False]
