"""Hashes of the traces of fixed seeds, by which a change that changes nothing can be told.

``python -m tests.sim.traces`` writes the sample anew, in some 25 s on two cores; with names of scenarios
(``python -m tests.sim.traces move splits``) only theirs; with ``--full`` also the seeds that only ``--full``
tests look at, in some minutes.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from medusa.sim.scenarios import SCENARIOS, run_scenario

__all__ = ["FULL", "FULL_FILE", "SAMPLE", "SAMPLE_FILE", "Case", "read", "trace"]

Case = tuple[str, int]
"""Scenario and seed."""

SAMPLE_FILE, FULL_FILE = (Path(__file__).with_name(name) for name in ("traces.txt", "traces_full.txt"))

LARGE = {"town": 1, "federation": 0}
"""Scenarios of a hundred and of a thousand nodes, and so many seeds of theirs."""

QUICK = ("cut", "crash", "chaos", "gap", "shed", "damage", "union")
"""Scenarios whose seeds take less than half a second."""

QUICK_SEEDS, SEEDS = 20, 8
"""Of each scenario in the full file. More show more and take longer: 260 in all are three minutes of CPU."""

SAMPLE = tuple((name, seed) for name in SCENARIOS for seed in range(LARGE.get(name, 2)))
FULL = tuple(
    (name, 10_000 + seed)
    for name in SCENARIOS
    if name not in LARGE
    for seed in range(QUICK_SEEDS if name in QUICK else SEEDS)
)


def trace(case: Case) -> str:
    """The hash of one seed's trace; of one that fails it tells that."""
    outcome = run_scenario(*case)
    return outcome.trace_hash + " failed" * (not outcome.ok)


def read(path: Path) -> dict[Case, str]:
    """What a file says."""
    lines = (line.split(" ", 2) for line in path.read_text().splitlines())
    return {(name, int(seed)): told for name, seed, told in lines}


def known(path: Path) -> dict[Case, str]:
    """The same; nothing where there is no file yet."""
    return read(path) if path.exists() else {}


def write(path: Path, cases: Iterable[Case], made: Mapping[Case, str]) -> list[str]:
    """Write a file; the scenarios of which something has changed."""
    before = known(path)
    found = {case: made.get(case) or before[case] for case in cases}
    path.write_text("".join(f"{name} {seed} {told}\n" for (name, seed), told in found.items()))
    changed = (name for (name, seed), told in found.items() if before.get((name, seed)) != told)
    return list(dict.fromkeys(changed))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scenario", nargs="*", help="only of these")
    parser.add_argument("--full", action="store_true", help="also those of --full tests")
    given = parser.parse_args()
    if unknown := set(given.scenario) - set(SCENARIOS):
        parser.error(f"no such scenario: {', '.join(sorted(unknown))}")
    files = {SAMPLE_FILE: SAMPLE} | ({FULL_FILE: FULL} if given.full else {})
    chosen = given.scenario or list(SCENARIOS)
    recorded = {path: known(path) for path in files}
    wanted = [
        case
        for path, cases in files.items()
        for case in cases
        if case[0] in chosen or case not in recorded[path]
    ]
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        made = dict(zip(wanted, pool.map(trace, wanted), strict=True))
    for path, cases in files.items():
        print(f"{path.name}: changed: {', '.join(write(path, cases, made)) or 'nothing'}")


if __name__ == "__main__":
    main()
