"""Figure 1 of the Medusa page: tolls from speed and volume, and tow trucks for cars that broke down.

Car sightings arrive from all over the road. Per segment and minute their average speed and the volume
(different cars) are computed apart and joined to a toll. Cars on the move are told the toll of their
segment; cars that broke down are joined with the tow trucks at their location.

Usage: python examples/figure1.py [--svg FILE]
"""

from __future__ import annotations

import argparse
import random

import medusa as md

SIGHTINGS = {"ts": "int64", "car": "int64", "seg": "int64", "speed": "float64"}
TRUCKS = {"ts": "int64", "truck": "utf8", "seg": "int64"}
TOLL = "CASE WHEN volume > 8 AND speed < 45 THEN 0.25 * (volume - 8) ELSE 0.0 END"


def query() -> md.Query:
    q = md.Query("figure-1")
    cars = q.source("sightings", SIGHTINGS, time="ts", unit="s", slack="5s")
    trucks = q.source("trucks", TRUCKS, time="ts", unit="s", slack="5s")

    minutes = cars.window("1 min").group_by("seg")
    speed = minutes.aggregate(speed=md.avg("speed"), name="average_speed")
    volume = minutes.aggregate(volume=md.count_distinct("car"), name="volume")
    tolls = speed.join(volume, on=["window", "seg"], name="speed_and_volume").with_columns(
        toll=TOLL, name="calculate_tolls"
    )
    q.sink("tolls", tolls)

    moving, standing = cars.route("speed > 0", otherwise=True, name="is_it_moving")
    told = moving.asof_join(tolls.select("seg", "toll", name="toll"), on="seg", within="1 min", how="inner")
    q.sink("notifications", told.filter("toll > 0", name="to_pay"))

    # Broken down: three sightings in a row without speed.
    broken = standing.group_by("car").running(stands=md.count(), expire="60s", name="stands_for")
    broken = broken.filter("stands = 3", name="broken_down").select(
        "car", "seg", seen="ts", name="breakdowns"
    )
    near = broken.join(trucks, on="seg", within="3 min", name="on_location")
    q.sink("tows", near.distinct("car", within="10 min", name="first_truck"))
    return q


def sightings(seed: int = 1, cars: int = 60, seconds: int = 600) -> dict[str, list[float]]:
    """Each car is seen every 20 s; some stop for good; segment 3 is slow."""
    chance = random.Random(seed)
    rows = []
    for car in range(cars):
        mile, breaks = chance.uniform(0, 3), chance.randrange(2 * seconds) if car % 6 == 0 else 2 * seconds
        for ts in range(chance.randrange(20), seconds, 20):
            seg = int(mile) % 6
            drives = chance.uniform(15, 40) if seg == 3 else chance.uniform(50, 80)
            speed = 0.0 if ts >= breaks else round(drives, 1)
            rows.append((ts, car, seg, speed))
            mile += speed * 20 / 3600
    return dict(zip(SIGHTINGS, map(list, zip(*sorted(rows), strict=True)), strict=True))


def tow_trucks(seed: int = 1, seconds: int = 600) -> dict[str, list[object]]:
    """Two trucks, each in another segment every minute."""
    chance = random.Random(seed)
    rows = [(ts, truck, chance.randrange(6)) for ts in range(0, seconds, 60) for truck in ("Anna", "Ben")]
    return dict(zip(TRUCKS, map(list, zip(*rows, strict=True)), strict=True))


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    arguments.add_argument("--svg", help="save the drawing of the query there")
    where = arguments.parse_args().svg
    q = query()
    if where:
        q.diagram().save(where)
    out = md.collect(q, sightings=sightings(), trucks=tow_trucks())
    tolls = out["tolls"].to_pylist()
    print(f"{len(tolls)} segment minutes, {sum(row['toll'] > 0 for row in tolls)} with a toll; the dearest:")
    for row in sorted(tolls, key=lambda row: -row["toll"])[:3]:
        print(
            "  {window_start:%H:%M} segment {seg}: {volume} cars at {speed:.1f} mph, {toll:.2f} $".format(
                **row
            )
        )
    told = out["notifications"].to_pylist()
    print(f"{len(told)} notifications to moving cars, {len({row['car'] for row in told})} different cars")
    for row in out["tows"].to_pylist():
        print(
            "truck {truck} is near car {car}, broken down in segment {seg} (seen at {seen} s)".format(**row)
        )


if __name__ == "__main__":
    main()
