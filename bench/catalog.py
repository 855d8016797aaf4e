"""How look-ups in the catalog between participants go while its members come and go.

    python -m bench.catalog [--most 10000]

Data: ``bench.members``: catalog minds without engines in virtual time, 20 to 40 ms from one to
another, 0.5 % of the messages lost; each member publishes one stream. Members stay for a mean time, then say
goodbye or crash, one half each, and come again, with nothing, after 30 s in the mean. Look-ups: any living
member, any name, also of those whose owner is away. Right: the last that the owner has published, or one not
older than what most holders had said that they hold. Not shown: real links and real signatures.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench import machine, report
from bench.conftest import RESULTS
from bench.members import SECOND_US, Churn, Members, Tally

COUNTS = (10, 100, 1_000, 10_000)
LIVES_S = (0.0, 600.0, 200.0, 60.0)
LOSS_PERMILLE = 5
WARM_S, MEASURED_S = 10.0, 30.0
LOOK_UPS_PER_S = 100
ROUNDS_AFTER = 3


def measure(counts: Sequence[int] = COUNTS, *, seed: int = 1) -> dict[str, Any]:
    """By number of members: figures for each rate of coming and going, and for the time after it."""
    found: dict[str, Any] = {**machine.describe(), "seed": seed, "members": {}}
    for count in counts:
        begin = time.process_time()
        members = Members(count, seed=seed)
        members.build()
        rows = {}
        for life_s in LIVES_S:
            members.churn_is(Churn(life_s=life_s, loss_permille=LOSS_PERMILLE))
            members.run(members.now_us + int(WARM_S * SECOND_US))
            members.tally = Tally()
            members.look_ups(LOOK_UPS_PER_S, MEASURED_S)
            rows[f"{life_s:g}"] = figures(members.tally)
        members.churn_is(Churn())
        members.run(members.now_us + ROUNDS_AFTER * members.settings.round_us)
        members.tally = Tally()
        members.look_ups(LOOK_UPS_PER_S, MEASURED_S)
        members.run(members.now_us + members.settings.deadline_us)
        rows["after"] = figures(members.tally)
        assert not members.broken, members.broken[:3]
        found["members"][str(count)] = {"rows": rows, "cpu_s": time.process_time() - begin}
        print(table(found), file=sys.stderr)
    return found


def figures(tally: Tally) -> dict[str, float]:
    """What one stretch of time showed."""
    hops, took_us = sorted(tally.hops), sorted(tally.took_us)
    return {
        "looked_up": tally.looked_up,
        "right": tally.right / tally.looked_up,
        "older": tally.older,
        "nothing": tally.nothing,
        "lost": tally.lost,
        "hops_mean": sum(hops) / len(hops),
        "hops_p99": hops[len(hops) * 99 // 100],
        "hops_max": hops[-1],
        "asked_mean": sum(tally.asked) / len(tally.asked),
        "took_p50_ms": took_us[len(took_us) // 2] / 1000,
        "took_p99_ms": took_us[len(took_us) * 99 // 100] / 1000,
        "messages": (tally.messages - 2 * sum(tally.asked)) / (tally.member_us / SECOND_US),
    }


def table(found: dict[str, Any]) -> str:
    lines = [
        f"{report.machine_line(found)} Seed {found['seed']}.",
        "",
        "| members | log2 n | a member stays | hops mean / p99 / max | questions | right | older | nothing "
        "| lost | ms p50 / p99 | messages a member and second |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for count, one in found["members"].items():
        for life, row in one["rows"].items():
            stays = {"0": "always", "after": "always, after all that"}.get(life, f"{life} s")
            lines.append(
                f"| {int(count):,} | {math.log2(int(count)):.1f} | {stays} "
                f"| {row['hops_mean']:.2f} / {row['hops_p99']} / {row['hops_max']} | {row['asked_mean']:.1f} "
                f"| {row['right']:.2%} | {row['older']} | {row['nothing']} | {row['lost']} "
                f"| {row['took_p50_ms']:,.0f} / {row['took_p99_ms']:,.0f} | {row['messages']:.1f} |"
            )
    spent = ", ".join(f"{int(count):,}: {one['cpu_s']:,.0f} s" for count, one in found["members"].items())
    return "\n".join([*lines, "", f"CPU time of one core: {spent}."]) + "\n"


def plot(found: dict[str, Any], path: Path) -> None:
    """Hops, right answers and messages against the number of members, a line for each rate."""
    plots = report.pyplot()
    figure, axes = plots.subplots(1, 3, figsize=(11, 3.4))
    counts = [int(count) for count in found["members"]]
    for life_s in LIVES_S:
        rows = [one["rows"][f"{life_s:g}"] for one in found["members"].values()]
        label = f"a member stays {life_s:g} s" if life_s else "all stay"
        axes[0].plot(counts, [row["hops_mean"] for row in rows], marker="o", label=label)
        axes[1].plot(counts, [100 * row["right"] for row in rows], marker="o", label=label)
        axes[2].plot(counts, [row["messages"] for row in rows], marker="o", label=label)
    axes[0].plot(counts, [math.log2(count) for count in counts], color="grey", linestyle=":", label="log2 n")
    axes[0].legend(fontsize=7)
    for axis, title in zip(axes, ("hops, mean", "right, %", "messages a member and second"), strict=True):
        axis.set_xscale("log")
        axis.set_xlabel("members")
        axis.set_title(title)
    axes[0].set_ylim(bottom=0)
    axes[2].set_ylim(bottom=0)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plots.close(figure)


def write(found: dict[str, Any], folder: Path) -> str:
    text = report.save("catalog", found, table(found), folder)
    plot(found, folder / "catalog.svg")
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--most", type=int, default=COUNTS[-1], help="members at most")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    sys.stdout.write(write(measure([each for each in COUNTS if each <= options.most]), options.out))


if __name__ == "__main__":
    main()
