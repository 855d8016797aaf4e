"""Vehicle tracking: the buses of Austin on Thanksgiving 2016: where traffic stands, who is silent.

Real positions, one to two minutes apart (CapMetrics by Sean Cascketta, MIT).

Usage: python examples/vehicle_tracking.py [--data FILE.parquet]
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pyarrow.parquet as pq

import medusa as md

BUSES = {"ts_s": "int64", "vehicle_id": "utf8", "speed": "float64", "route_id": "utf8"}
DATA = Path(__file__).parents[1] / "tests" / "data" / "austin_buses.parquet"


def query() -> md.Query:
    q = md.Query("buses")
    buses = q.source("buses", BUSES, time="ts_s", unit="s", slack="10s")
    hours = (
        buses.window("1h")
        .group_by("route_id")
        .aggregate(buses=md.count_distinct("vehicle_id"), kmh=md.avg("speed * 3.6"), reports=md.count())
    )
    busy = hours.filter("reports >= 60").select("route_id", "buses", "kmh")
    q.sink("slowest", busy.window("1h").top(1, by="kmh", descending=False))
    # Five reports or more without speed, each less than five minutes after the one before.
    stands = buses.filter("speed < 0.5").session("5 min").group_by("vehicle_id")
    stands = stands.aggregate(reports=md.count(), since=md.min("ts_s"), until=md.max("ts_s"))
    q.sink("stands", stands.filter("reports >= 5").with_columns(minutes="(until - since) / 60.0"))
    days = buses.session("1h").group_by("vehicle_id").aggregate(reports=md.count(), fastest=md.max("speed"))
    q.sink("shifts", days)
    return q


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    arguments.add_argument("--data", default=DATA, help="a Parquet file with the columns of the bus data")
    table = pq.read_table(arguments.parse_args().data, columns=list(BUSES))
    out = md.collect(query(), buses=table)
    print(f"{table.num_rows:,} positions; the slowest route of some hours (UTC):")
    for row in out["slowest"].to_pylist()[14:20]:
        print(
            "  {window_start:%d %b %H:%M} route {route_id:>4}: {buses:2} buses, {kmh:4.1f} km/h".format(**row)
        )
    longest = max(out["stands"].to_pylist(), key=lambda row: row["minutes"])
    print(f"{out['stands'].num_rows:,} long stops; the longest:", end=" ")
    print("bus {vehicle_id}, from {window_start:%d %b %H:%M}, {minutes:.0f} minutes".format(**longest))
    print(f"{out['shifts'].num_rows:,} shifts (silence of an hour between them)")


if __name__ == "__main__":
    main()
