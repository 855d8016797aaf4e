"""What runs meet is counted without changing them, and docs/simulator.md says what none does."""

from __future__ import annotations

import json
import re
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from click.testing import CliRunner

from medusa.cli.main import main
from medusa.sim.coverage_run import cover, report, summary
from medusa.sim.scenarios import run_scenario
from medusa.sim.trials.coverage import TABLES, Coverage, events, refusal_codes

PAGE = Path(__file__).parents[2] / "docs" / "simulator.md"
UNMET = "## What no run meets"
FEW = ("cut", "chaos", "liar", "nodes", "move")


def unmet_by_the_page() -> list[str]:
    """Patterns of events, from the first column of the page's table."""
    section = PAGE.read_text().partition(UNMET)[2].partition("\n## ")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    return [pattern for row in rows for pattern in re.findall(r"`([^`]+)`", row)]


@pytest.fixture(scope="module")
def few() -> Coverage:
    """A seed of a few quick scenarios."""
    failed = []
    found = cover(len(FEW), start=3, scenarios=FEW, failed=failed.append)
    assert not failed
    return found


def test_the_page_names_every_refusal_of_the_source():
    missing = [
        code for code in refusal_codes() if f"`{code}`" not in PAGE.read_text().replace("refusal: ", "")
    ]
    assert not missing, f"{missing}: say in docs/simulator.md whether a run meets them, or why none does"


def test_what_the_page_says_that_no_run_meets_exists_and_a_small_run_does_not_meet_it(few):
    patterns = unmet_by_the_page()
    assert len(patterns) > 10
    for pattern in patterns:
        assert any(fnmatchcase(event, pattern) for event in events()), f"{pattern} is no event"
    assert not met_against(few, patterns), "docs/simulator.md says that no run meets these"


def met_against(coverage: Coverage, patterns: list[str]) -> list[str]:
    """Events that a run met, and of which a pattern says that none does."""
    return [e for e in events() if coverage.times[e] and any(fnmatchcase(e, each) for each in patterns)]


@pytest.mark.full
@pytest.mark.issue(15)
def test_100_runs_of_all_scenarios_meet_nothing_of_which_the_page_says_that_none_does():
    failed = []
    found = cover(100, start=3, failed=failed.append)
    assert not failed
    assert not met_against(found, unmet_by_the_page())


def test_a_small_run_meets_what_any_run_must(few):
    must = {"session: up", "session: silent", "deployment: running", "fragment: runs", "refusal: E_STREAM"}
    must |= {"receiver: idle, peer up", "receiver: attaching, Attached", "sender: detached, Attach"}
    assert must <= {event for event in events() if few.times[event]}
    assert few.runs == len(FEW)
    assert max(few.in_runs.values()) <= len(FEW)
    assert all(few.in_runs[event] <= few.times[event] for event in events())
    assert set(few.unmet) | {event for event in events() if few.times[event]} == set(events())


@pytest.mark.parametrize(("name", "seed"), [("chaos", 1), ("nodes", 0), ("move", 1)])
def test_recording_changes_nothing(name, seed):
    coverage = Coverage()
    assert run_scenario(name, seed, coverage=coverage) == run_scenario(name, seed)
    assert coverage.runs == 1
    assert all(type(row) is dict for table in TABLES.values() for row in table.values())


def test_codes_are_found_in_the_source_by_themselves():
    codes = refusal_codes()
    assert {"E_STREAM", "E_MOVED", "E_CREDIT", "E_TAKEN"} <= set(codes)
    assert list(codes) == sorted(set(codes))


def test_the_command_prints_it_for_people_and_scripts():
    asked = ["sim", "crash", "--coverage", "--seeds", "2"]
    short, table = (CliRunner().invoke(main, [*asked, *more]) for more in ([], ["--every-event"]))
    assert (short.exit_code, table.exit_code) == (0, 0)
    assert "2 runs met" in short.output.splitlines()[-1]
    assert table.output.endswith(short.output)
    assert len(table.output.splitlines()) == len(events()) + len(short.output.splitlines())
    told = CliRunner().invoke(main, ["sim", "crash", "--coverage", "--seeds", "2", "--json"])
    found = json.loads(told.output)
    assert (found["runs"], found["violations"]) == (2, [])
    assert list(found["events"]) == list(events())
    assert set(found["unmet"]) == {event for event, each in found["events"].items() if not each["times"]}
    coverage = Coverage()
    for seed in range(2):
        run_scenario("crash", seed, coverage=coverage)
    assert found == {**report(coverage), "violations": []}


def test_the_summary_names_what_was_not_met_and_counts_the_rest():
    coverage = Coverage()
    for event in events():
        if event not in (
            "sender: paused, Ack",
            "fault: pause, writes",
            "fault: pause, splits",
            "fault: pause",
        ):
            coverage.times[event], coverage.in_runs[event] = 7, 150
    coverage.runs, coverage.in_runs["refusal: E_STREAM"] = 300, 3
    lines = list(summary(coverage))
    assert lines[:3] == [
        "not met  sender: paused, Ack",
        "not met  fault: pause",
        "not met  fault pause: writes; splits",
    ]
    assert (
        f"refusal: {len(refusal_codes())} of {len(refusal_codes())} met, 1 of them in 1 % of the runs at most"
        in lines
    )
    assert "session: 2 of 2 met" in lines
    assert lines[-1] == f"300 runs met {len(events()) - 4} of {len(events())} events"


def test_every_event_is_of_a_coverage():
    result = CliRunner().invoke(main, ["sim", "crash", "--every-event"])
    assert result.exit_code == 2
    assert "give that too" in result.output


def test_one_seed_is_no_coverage():
    result = CliRunner().invoke(main, ["sim", "crash", "--coverage", "--seed", "2"])
    assert result.exit_code == 2
    assert "--coverage is of many seeds" in result.output
