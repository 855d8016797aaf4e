"""Linear Road in the builder: tolls, accidents and account balances.

The benchmark of Arasu et al. (VLDB 2004) charges cars on expressways by how full and how slow a mile
was a minute ago. This is its continuous part, over one stream of position reports and requests:

- A car's entry into a segment (its first report there, not in the exit lane 4) gives a row of ``tolls``:
  the latest average velocity ``lav`` (mean of the means per minute of the last five minutes, each the
  mean over cars of their mean; null without any) and ``toll``: 2 (cars - 50)^2 where more than 50 cars
  were there in the minute before, ``lav`` is below 40 and no accident is near, else 0.
- Two cars that stand at one place of a travel lane, each for four reports, are an accident. It is felt
  in its segment and the four before it, from the minute after to the minute in which only one is left.
  An entry near one also gives a row of ``accidents``: ``seg`` is where the nearest is.
- The toll of a segment is charged when the car is seen in another one (``charges``), also in its exit
  lane; who leaves by the exit of the segment itself doesn't pay. A car silent for more than 60 s begins
  a new trip.
- ``balances`` has the sum of a car's charges up to and including the second of a request.
"""

from __future__ import annotations

from medusa.query.builder import Query
from medusa.query.expressions.aggregates import avg, count, last, sum
from medusa.query.stream.window_steps import lag

__all__ = ["FIELDS", "query"]

FIELDS = (
    *("type", "time", "vid", "spd", "xway", "lane", "dir", "seg", "pos"),
    *("qid", "sinit", "send", "dow", "tod", "day"),
)
"""The columns of the input, int32; -1 where one isn't used. ``time`` is in seconds from the start.
``type`` 0 is a position report, 2 a request for an account balance; others are left out."""

CELL = "(xway * 2 + dir) * 1000 + seg"
SPOT = "((xway * 2 + dir) * 5 + lane) * 528000 + pos"
CELL_OF_SPOT = "spot // 2640000 * 1000 + spot % 528000 // 5280"
NO_TOLL = "coalesce(lane = 4 OR cars <= 50 OR lav >= 40 OR accident IS NOT NULL, true)"


# fmt: off
def query() -> Query:
    """The query: source ``input``, sinks ``tolls``, ``accidents``, ``charges`` and ``balances``."""
    q = Query("linear_road")
    rows = q.source("input", dict.fromkeys(FIELDS, "int32"), time="time", unit="s")
    reports, requests = rows.route("type = 0", "type = 2")
    reports = reports.select("time", "vid", "spd", "xway", "lane", "dir", "seg",
                             cell=CELL, spot=SPOT, ahead="1 - 2 * dir", name="reports")

    # How many cars were in a segment in the last minute, and how fast in the last five.
    per_car = reports.window("1 min").group_by("cell", "vid").aggregate(v=avg("spd"), name="per_car")
    minutes = per_car.window("1 min").group_by("cell").aggregate(n=count(), v=avg("v"), name="minutes")
    traffic = (
        minutes.window("5 min", advance="1 min").group_by("cell")
        .aggregate(lav=avg("v"), n=last("n"), seen=last("window_end"), name="five_minutes")
        .select("cell", "lav", cars="CASE WHEN seen = window_end THEN n ELSE 0 END", name="traffic"))

    # Cars that come to a stand (their fourth report at p1) or leave it; how many stand at each spot.
    standing = (
        reports.group_by("vid")
        .running(p1=lag("spot"), p2=lag("spot", 2), p3=lag("spot", 3), p4=lag("spot", 4))
        .filter("p1 = p2 AND p2 = p3 AND (spot = p1) <> coalesce(p3 = p4, false)", name="stops")
        .select(spot="p1", step="CASE WHEN spot = p1 THEN 1 ELSE -1 END")
        .filter("spot // 528000 % 5 BETWEEN 1 AND 3", name="in_travel_lanes")
        .group_by("spot").running(cars=sum("step"), name="standing"))
    by_minute = (
        standing.filter("cars = CASE step WHEN 1 THEN 2 ELSE 1 END", name="accident_changes")
        .select("step", cell=CELL_OF_SPOT).group_by("cell").running(live=sum("step"))
        .window("1 min").group_by("cell").aggregate(live=last("live"), name="accidents_by_minute"))

    # Every entry into a segment, with its traffic and the accidents in it and in the next four.
    entries = (
        reports.group_by("vid").running(was=lag("cell"), expire="60s")
        .filter("was IS DISTINCT FROM cell", name="entries")
        .asof_join(traffic, on="cell", within="1 min"))
    for n in range(5):
        there = by_minute.select({f"at{n}": "cell", f"live{n}": "live"})
        entries = entries.with_columns({f"at{n}": f"cell + {n} * ahead"}).asof_join(there, on=f"at{n}")
    nearest = " ".join(f"WHEN live{n} > 0 THEN seg + {n} * ahead" for n in range(5))
    entries = entries.with_columns(accident=f"CASE {nearest} END").with_columns(
        toll=f"CASE WHEN {NO_TOLL} THEN 0 ELSE 2 * (cars - 50) * (cars - 50) END")

    # The toll of a segment is charged at the entry into the next one of the same trip.
    accounts = q.table("accounts", key="vid", schema={"vid": "int32", "balance": "int64"})
    charges = (
        entries.group_by("vid").running(charge=lag("toll"))
        .filter("was IS NOT NULL AND charge > 0", name="to_charge").select("time", "vid", "charge")
        .update(accounts, set={"balance": "table.balance + charge"}, insert={"balance": "charge"}))
    balances = requests.select("time", "vid", "qid").lookup(accounts)

    told = entries.filter("lane <> 4", name="told")
    near = told.filter("accident IS NOT NULL", name="near_accidents")
    q.sink("tolls", told.select("time", "vid", "lav", "toll"))
    q.sink("accidents", near.select("time", "vid", "xway", "dir", seg="accident"))
    q.sink("charges", charges)
    q.sink("balances", balances.with_columns(balance="coalesce(balance, 0)"))
    return q
# fmt: on
