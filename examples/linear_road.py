"""Linear Road: tolls that follow the traffic, accidents, and the accounts of the drivers.

The benchmark's continuous queries on made traffic: see docs/linear-road.md.

Usage: python examples/linear_road.py [--cars 900] [--seconds 900] [--seed 0]
"""

from __future__ import annotations

import argparse
from collections import Counter

import medusa as md
from medusa.apps.workloads import linear_road
from medusa.apps.workloads.linear_road_traffic import Traffic, traffic


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    arguments.add_argument("--cars", type=int, default=900, help="trips that begin")
    arguments.add_argument("--seconds", type=int, default=900, help="until when cars report")
    arguments.add_argument("--seed", type=int, default=0, help="of the traffic")
    given = arguments.parse_args()
    rows = traffic(Traffic(cars=given.cars, seconds=given.seconds), seed=given.seed)
    out = md.collect(linear_road.query(), input=rows)
    tolls = out["tolls"].to_pylist()
    slow = sum(row["lav"] is not None and row["lav"] < 40 for row in tolls) / len(tolls)
    cost = sum(row["toll"] > 0 for row in tolls) / len(tolls)
    print(f"{rows.num_rows:,} rows; {len(tolls):,} entries, {slow:.0%} into slow segments, ", end="")
    print(f"{cost:.0%} cost a toll")
    near = Counter((row["dir"], row["seg"]) for row in out["accidents"].to_pylist())
    for (direction, segment), count in sorted(near.items()):
        print(f"accident in segment {segment}, direction {direction}: {count} drivers told")
    dearest = max(tolls, key=lambda row: row["toll"])
    print("highest toll: {toll} for car {vid} at {time} s, with {lav:.1f} mph".format(**dearest))
    asked = out["balances"].to_pylist()
    richest = max(asked, key=lambda row: row["balance"])
    print(f"{len(asked)} requests answered; the highest: {richest['balance']} of car {richest['vid']}")


if __name__ == "__main__":
    main()
