"""Linear Road's rules one by one, on the smallest traffic that shows each; the oracle must agree."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

import medusa as md
from medusa.apps.workloads import linear_road
from medusa.apps.workloads.linear_road import FIELDS
from tests.oracle.linear_road import linear_road as oracle

QUERY = linear_road.query()
CROWD = range(1_000, 1_060)
Row = tuple[int, ...]


def report(time: int, vid: int, lane: int, seg: int, feet: int | None = None) -> Row:
    pos = seg * 5280 + (100 + time + vid if feet is None else feet)
    return (0, time, vid, 20, 0, lane, 0, seg, pos, *(-1,) * 6)


def request(time: int, vid: int) -> Row:
    return (2, time, vid, *(-1,) * 6, vid, *(-1,) * 5)


def answers(*rows: Row) -> dict[str, list[dict[str, Any]]]:
    columns = zip(*sorted(rows, key=lambda row: row[1:3]), strict=True)
    table = pa.table({name: pa.array(c, pa.int32()) for name, c in zip(FIELDS, columns, strict=True)})
    out = md.collect(QUERY, input=table)
    wanted, _ = oracle(table.to_pylist())
    found = {sink: out[sink].to_pylist() for sink in ("tolls", "accidents", "charges", "balances")}
    for sink, rows_found in found.items():
        assert [tuple(row.values()) for row in rows_found] == wanted[sink], sink
    return found


def crowd(seg: int = 10, time: int = 0) -> list[Row]:
    """Sixty cars in one minute: who enters in the next pays 200."""
    return [report(time, vid, 1, seg) for vid in CROWD]


def standing(*vids: int, lane: int = 1, seg: int = 12, times: range = range(0, 120, 30)) -> list[Row]:
    return [report(time, vid, lane, seg, feet=77) for time in times for vid in vids]


def tolls_of(vid: int, found: dict[str, list[dict[str, Any]]]) -> list[int]:
    return [row["toll"] for row in found["tolls"] if row["vid"] == vid]


def test_the_crowd_of_the_minute_before_costs() -> None:
    found = answers(*crowd(), report(59, 1, 1, 10), report(60, 2, 1, 10), report(119, 3, 1, 10))
    assert [tolls_of(vid, found) for vid in (1, 2, 3)] == [[0], [242], [242]]  # Car 1 was one of 61.


def test_a_crowd_two_minutes_ago_leaves_its_velocity_and_no_toll() -> None:
    found = answers(*crowd(), report(120, 1, 1, 10), report(359, 2, 1, 10), report(420, 3, 1, 10))
    assert tolls_of(1, found) == [0]
    assert [row["lav"] for row in found["tolls"][-3:]] == [20.0, 20.0, 20.0]


def test_sixty_seconds_of_silence_are_one_trip_and_sixty_one_are_two() -> None:
    found = answers(report(0, 1, 1, 10), report(60, 1, 1, 10), report(0, 2, 1, 10), report(61, 2, 1, 10))
    assert [len(tolls_of(vid, found)) for vid in (1, 2)] == [1, 2]


def test_a_new_trip_does_not_pay_for_the_last_one() -> None:
    cars = [report(60, 1, 1, 10), report(60, 2, 1, 10), report(120, 1, 1, 11), report(121, 2, 1, 11)]
    found = answers(*crowd(), *cars, request(120, 1), request(121, 2))
    assert [row["balance"] for row in found["balances"]] == [200, 0]


def test_the_exit_lane_is_told_nothing_and_owes_nothing() -> None:
    cars = [report(60, 1, 4, 10), report(90, 1, 1, 11)]
    found = answers(*crowd(), *cars, request(90, 1))
    assert tolls_of(1, found) == [0]
    assert found["balances"][0]["balance"] == 0


def test_two_cars_that_stand_for_four_reports_are_an_accident_of_the_next_minutes() -> None:
    cars = [report(time, 10 + time, 1, 8) for time in (119, 120, 179)]
    moves = [report(120, 1, 1, 12, feet=78), report(120, 2, 1, 12, feet=77)]
    found = answers(*standing(1, 2), *moves, *cars, report(180, 500, 1, 8), *crowd(8, 60))
    assert [(row["time"], row["vid"], row["seg"]) for row in found["accidents"]] == [
        (120, 130, 12),
        (179, 189, 12),
    ]
    assert tolls_of(130, found) == [0]  # For all the crowd of the minute before.


def test_three_reports_one_car_or_another_lane_are_no_accident() -> None:
    later = [report(120, 9, 1, 12)]
    for rows in (
        standing(1, 2, times=range(30, 120, 30)),
        standing(1),
        standing(1, lane=1) + standing(2, lane=2),
        standing(1, 2, lane=0),
        standing(1, 2, lane=4),
    ):
        assert answers(*rows, *later)["accidents"] == []
    assert len(answers(*standing(1, 2), *later)["accidents"]) == 1


def test_an_accident_is_felt_four_segments_before_it_and_the_nearest_counts() -> None:
    rows = standing(1, 2, seg=20) + standing(3, 4, seg=18)
    later = [report(120, 100 + seg, 1, seg) for seg in (13, 14, 17, 19, 20, 21)]
    found = answers(*rows, *later)["accidents"]
    assert [(row["vid"], row["seg"]) for row in found] == [(114, 18), (117, 18), (119, 20), (120, 20)]


def test_of_three_cars_one_may_go() -> None:
    moves = [report(120, 1, 1, 12, feet=99), *standing(2, 3, times=range(120, 300, 30))]
    found = answers(*standing(1, 2, 3), *moves, report(240, 9, 1, 12))["accidents"]
    assert found[-1]["vid"] == 9
