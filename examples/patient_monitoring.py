"""Patient monitoring: vital signs that arrive when they like, on one grid, with alarms that last.

Pulse (about every second) and oxygen (about every five) of three patients. Both are put on a grid of
five seconds and joined; an alarm needs three bad values in a row; a sensor that falls off leaves a gap.

Usage: python examples/patient_monitoring.py
"""

from __future__ import annotations

import random

import medusa as md

PULSE = {"ms": "int64", "patient": "int64", "pulse": "float64"}
OXYGEN = {"ms": "int64", "patient": "int64", "oxygen": "float64"}


def query() -> md.Query:
    q = md.Query("patients")
    pulse = q.source("pulse", PULSE, time="ms", unit="ms", slack="2s").select("patient", "pulse")
    oxygen = q.source("oxygen", OXYGEN, time="ms", unit="ms", slack="2s").select("patient", "oxygen")
    pulse = pulse.resample("5s", by="patient", how="linear", gap="15s", time="at")
    oxygen = oxygen.resample("5s", by="patient", how="previous", gap="15s", time="at")
    q.sink("gaps", oxygen.filter("gap").select("at", "patient"))
    signs = pulse.join(oxygen, on=["at", "patient"], within=0).filter("NOT gap AND NOT gap_right")
    bad = "pulse NOT BETWEEN 45 AND 130 OR oxygen < 90"
    signs = signs.select("at", "patient", "pulse", "oxygen", bad=f"coalesce({bad}, false)")
    before = {"bad1": md.lag("bad"), "bad2": md.lag("bad", 2), "bad3": md.lag("bad", 3)}
    lasting = signs.group_by("patient").running(**before, expire="5s")
    q.sink("alarms", lasting.filter("bad AND bad1 AND bad2 AND coalesce(NOT bad3, true)"))
    episodes = signs.filter("bad").session("30s").group_by("patient")
    q.sink("episodes", episodes.aggregate(low=md.min("oxygen"), high=md.max("pulse"), values=md.count()))
    return q


def signs(seed: int = 9, seconds: int = 600) -> dict[str, dict[str, list[float]]]:
    chance = random.Random(seed)
    pulse, oxygen = [], []
    for patient in (1, 2, 3):
        for s in range(seconds):
            ill = patient == 2 and 200 <= s < 260
            pulse.append(
                (s * 1000 + chance.randrange(400), patient, round(chance.gauss(140 if ill else 75, 2), 1))
            )
            off = patient == 3 and 300 <= s < 340
            if s % 5 == 0 and not off:
                low = ill and s >= 220
                value = round(min(100.0, chance.gauss(86 if low else 97, 0.5)), 1)
                oxygen.append((s * 1000 + chance.randrange(400), patient, value))
    return {
        "pulse": dict(zip(PULSE, map(list, zip(*sorted(pulse), strict=True)), strict=True)),
        "oxygen": dict(zip(OXYGEN, map(list, zip(*sorted(oxygen), strict=True)), strict=True)),
    }


def main() -> None:
    out = md.collect(query(), **signs())
    for row in out["alarms"].to_pylist():
        print("ALARM {at:%H:%M:%S} patient {patient}: pulse {pulse:.0f}, oxygen {oxygen:.0f} %".format(**row))
    for row in out["episodes"].to_pylist():
        print(
            "patient {patient}: {values} bad values, pulse to {high:.0f}, oxygen to {low:.0f} %".format(**row)
        )
    for row in out["gaps"].to_pylist()[:-3]:
        print("patient {patient}: no oxygen value from {at:%H:%M:%S}".format(**row))


if __name__ == "__main__":
    main()
