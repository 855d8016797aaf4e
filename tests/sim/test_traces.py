"""Traces of fixed seeds are those of the file: a change that changes nothing changes none.

The files hold a hash a seed. ``tests/sim/traces.py`` says how they are written.
"""

from __future__ import annotations

import pytest

from medusa.sim.scenarios import SCENARIOS
from tests.sim.traces import FULL, FULL_FILE, LARGE, SAMPLE, SAMPLE_FILE, Case, read, trace, write


def difference(cases: tuple[Case, ...], want: dict[Case, str], command: str) -> str:
    """What to do about seeds whose traces have changed; empty: none has."""
    changed = [f"{name} {seed}" for name, seed in cases if trace((name, seed)) != want.get((name, seed))]
    if not changed:
        return ""
    return (
        f"other traces than recorded: {', '.join(changed)}. If nothing that nodes say or do was to change, "
        "it has: compare `medusa sim SCENARIO --seed N --trace` before and after. If it was meant to, and "
        f"the tests of the scenario pass, say why in the commit and write the hashes anew: {command}"
    )


@pytest.mark.parametrize(("name", "seed"), SAMPLE)
def test_trace(name: str, seed: int) -> None:
    told = difference(((name, seed),), read(SAMPLE_FILE), f"python -m tests.sim.traces {name}")
    assert not told, told


@pytest.mark.full
@pytest.mark.issue(16)
@pytest.mark.parametrize("name", [name for name in SCENARIOS if name not in LARGE])
def test_more_traces(name: str) -> None:
    cases = tuple(case for case in FULL if case[0] == name)
    told = difference(cases, read(FULL_FILE), f"python -m tests.sim.traces --full {name}")
    assert not told, told


def test_the_files_have_the_seeds_that_are_looked_at_and_none_failed() -> None:
    for path, cases in ((SAMPLE_FILE, SAMPLE), (FULL_FILE, FULL)):
        recorded = read(path)
        assert tuple(recorded) == cases, f"write it anew: python -m tests.sim.traces --full ({path.name})"
        assert not [case for case, told in recorded.items() if "failed" in told]
    assert {name for name, _ in SAMPLE} == set(SCENARIOS) - {"federation"}
    assert 200 < len(FULL) <= 1000


def test_a_trace_that_has_changed_is_told_with_what_to_do(tmp_path) -> None:
    case = SAMPLE[0]
    assert difference((case,), {case: "0123"}, "COMMAND").endswith(": COMMAND")
    path = tmp_path / "traces.txt"
    assert write(path, SAMPLE[:4], dict.fromkeys(SAMPLE[:4], "0123")) == list(
        dict.fromkeys(name for name, _ in SAMPLE[:4])
    )
    assert write(path, SAMPLE[:4], {case: "4567"}) == [case[0]], "the others stay"
    assert list(read(path).values()) == ["4567", *["0123"] * 3]
