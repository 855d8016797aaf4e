"""A fabrication line: machines measure each part; drift, quality and machines that fall silent.

Four machines each make a part every two seconds or so and measure its width. One drifts, one stops for
a while.

Usage: python examples/fabrication_line.py
"""

from __future__ import annotations

import random

import medusa as md

PARTS = {"ms": "int64", "machine": "int64", "width": "float64"}
TARGET, TOLERANCE = 20.0, 0.05


def query() -> md.Query:
    q = md.Query("line")
    parts = q.source("parts", PARTS, time="ms", unit="ms", slack="1s")
    good = parts.with_columns(good=f"abs(width - {TARGET}) <= {TOLERANCE}")
    # Control chart: the mean of the last 50 parts, a value every 10; it drifts long before parts are bad.
    charts = good.group_by("machine").window_rows(50, advance=10)
    charts = charts.aggregate(mean=md.avg("width"), sigma=md.stddev("width"), at=md.last("ms"))
    drift = charts.filter(f"abs(mean - {TARGET}) > 0.02").distinct("machine", within="1h")
    q.sink("drift", drift.select("machine", "mean", "sigma", "at"))
    quality = good.window("5 min").group_by("machine")
    quality = quality.aggregate(parts=md.count(), bad=md.count("CASE WHEN NOT good THEN 1 END"))
    q.sink("quality", quality.with_columns(rate="1 - bad / parts"))
    # A machine that makes nothing for 20 s: each session but the last ends with such a gap.
    q.sink("runs", good.session("20s").group_by("machine").aggregate(parts=md.count(), last=md.max("ms")))
    return q


def line(seed: int = 5, minutes: int = 20) -> dict[str, list[float]]:
    chance = random.Random(seed)
    rows = []
    for machine in (1, 2, 3, 4):
        ms = chance.randrange(2_000)
        while ms < minutes * 60_000:
            drifts = (ms / 60_000) * 0.002 if machine == 3 else 0.0
            rows.append((ms, machine, round(chance.gauss(TARGET + drifts, 0.015), 4)))
            stops = machine == 2 and 420_000 <= ms < 425_000
            ms += 65_000 if stops else chance.randrange(1_500, 2_500)
    return dict(zip(PARTS, map(list, zip(*sorted(rows), strict=True)), strict=True))


def main() -> None:
    out = md.collect(query(), parts=line())
    print("machine  parts  bad  quality, by five minutes")
    for row in out["quality"].to_pylist():
        if row["bad"]:
            print("{machine:7}  {parts:5}  {bad:3}  {rate:7.1%}  from {window_start:%H:%M}".format(**row))
    for row in out["drift"].to_pylist():
        print("machine {machine} drifts: mean {mean:.4f} mm, sigma {sigma:.4f} at {at} ms".format(**row))
    for machine in (1, 2, 3, 4):
        runs = [row for row in out["runs"].to_pylist() if row["machine"] == machine]
        for row in runs[:-1]:
            print("machine {machine} fell silent after part {parts}, at {last} ms".format(**row))


if __name__ == "__main__":
    main()
