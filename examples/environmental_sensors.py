"""Environmental sensors: stations on bad links send late, in bursts and with gaps.

Five stations measure the temperature every minute and send when they can. Lateness is judged for each
station; what is too late is kept apart; gaps in the hourly means are marked, not filled.

Usage: python examples/environmental_sensors.py
"""

from __future__ import annotations

import math
import random
import warnings

import medusa as md

READINGS = {"ts": "int64", "station": "utf8", "celsius": "float64"}


def query() -> md.Query:
    q = md.Query("stations")
    readings = q.source("readings", READINGS, time="ts", unit="s", slack="10 min", partition="station")
    q.sink("too_late", readings.late)
    grid = readings.select("station", "celsius").resample("10 min", by="station", gap="30 min", time="at")
    q.sink("gaps", grid.filter("gap").select("station", "at"))
    days = grid.filter("NOT gap").window("1 day").group_by("station")
    days = days.aggregate(
        low=md.min("celsius"), mean=md.avg("celsius"), high=md.max("celsius"), values=md.count()
    )
    q.sink("days", days)
    # A station that is three degrees off the median of all in that hour.
    hours = grid.filter("NOT gap").window("1h")
    each = hours.group_by("station").aggregate(here=md.avg("celsius"))
    off = each.join(hours.aggregate(all=md.median("celsius")), on="window").filter("abs(here - all) > 3")
    q.sink("off", off.distinct("station", within="1 day"))
    return q


def readings(seed: int = 2, hours: int = 48) -> dict[str, list[object]]:
    """In order of arrival: each station sends what it has kept, most at once, some much later."""
    chance = random.Random(seed)
    arrivals = []
    for number, station in enumerate(("bay", "crag", "fen", "moor", "weir")):
        for ts in range(0, hours * 3600, 60):
            if station == "moor" and 80_000 <= ts < 90_000:
                continue  # Its battery was changed.
            warm = 12 + 5 * math.sin((ts / 3600 - 9) / 24 * 2 * math.pi) + number * 0.3
            warm += 8.0 if station == "fen" and ts >= 120_000 else 0.0  # The sun on a broken shield.
            delay = chance.randrange(1, 60) if chance.random() < 0.999 else chance.randrange(300, 5_000)
            arrivals.append((ts + delay, ts, station, round(chance.gauss(warm, 0.2), 2)))
    return dict(
        zip(READINGS, map(list, zip(*(row[1:] for row in sorted(arrivals)), strict=True)), strict=True)
    )


def main() -> None:
    warnings.simplefilter("ignore", md.LateWarning)  # Late rows are expected, and kept apart.
    with md.start(query()) as run:
        run.push("readings", readings())
        run.finish()
        out = {name: run.take(name).to_pylist() for name in ("too_late", "gaps", "days", "off")}
    print("day     station   low   mean   high  values")
    for row in out["days"]:
        print(
            "{window_start:%d %b}  {station:7} {low:5.1f}  {mean:5.1f}  {high:5.1f}  {values:6}".format(**row)
        )
    for row in out["gaps"][:-5]:
        print("{station}: nothing from {at:%d %b %H:%M} on".format(**row))
    for row in out["off"]:
        print("{station}: {here:.1f} where all have {all:.1f}, {window_start:%d %b %H:%M}".format(**row))
    print(f"{len(out['too_late'])} readings came too late and are kept apart")


if __name__ == "__main__":
    main()
