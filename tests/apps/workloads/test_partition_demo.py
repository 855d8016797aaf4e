"""A node is cut off, a reader goes on with its replica: what is checked, shown, drawn, and left behind."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from medusa.apps.workloads.demos.federation_outcome import TableComparison
from medusa.apps.workloads.partition import partition_demo
from medusa.apps.workloads.partition.partition_check import PartitionEvent
from medusa.apps.workloads.partition.partition_outcome import (
    PartitionArrival,
    PartitionOutcome,
    Sighting,
    fault_in,
)
from medusa.cli.main import main
from medusa.errors import LinkError
from tests.apps.workloads.test_tentative_demo import FINE as AFTER
from tests.system.network import needs_network

DEADLINE_S = 120
KINDS = ("relays", "namespaces")

Arrival = PartitionArrival


def sighting(asked_s: float, origin: str, next_row: int, **changes: Any) -> Sighting:
    known: dict[str, Any] = {
        "configuration": 2 if origin == "a" else 3,
        "owner": origin,
        "following": ["b"] if origin == "a" else [],
        "read_version": 1,
        "own_version": 1,
    }
    return Sighting(asked_s=asked_s, origin=origin, next_row=next_row, **{**known, **changes})


ARRIVALS = [
    Arrival(0.5, 0, [0, 1]),
    Arrival(1.0, 2, [2]),
    Arrival(3.0, 3, [3, 4, 5]),
    Arrival(6.0, 6, [6]),
]
SIGHTINGS = [
    sighting(0.5, "a", 2),
    sighting(2.5, "a", 3),
    sighting(3.1, "b", 6),
    sighting(5.5, "b", 7, following=["a"]),
]
FINE = PartitionOutcome(
    network="relays",
    network_text="no network is cut",
    guarded="a",
    secondary="b",
    events=[PartitionEvent(2.0, "the link of a is cut")],
    arrivals=ARRIVALS,
    sightings=SIGHTINGS,
    cut_s=2.0,
    healed_s=5.0,
    published=7,
    lost_rows=0,
    reader_versions=(1, 1),
    comparison=TableComparison(rows=7, expected=7),
    seconds=6.5,
)


X_CHECK = 1
"""Whether results were in time: on a machine that is busy with other tests any process may be held up."""


@pytest.mark.system
@pytest.mark.parametrize("network", KINDS)
def test_a_cut_is_survived_with_each_row_once_and_one_of_all_replicas_too(
    network: str, tmp_path: Path
) -> None:
    if network == "namespaces":
        needs_network()
    plot = tmp_path / "rows.svg"
    asked = ["--network", network, "--rest", "0.3", "--rate", "1000", "--plot", str(plot)]
    shown = CliRunner().invoke(main, ["demo", "partition", "--json", *asked])
    assert shown.stdout, (shown.stderr, shown.exception)
    told = json.loads(shown.stdout)
    assert told["network"] == network
    assert [each["fault"] for each in told["checks"]] == [""] * 5
    assert told["received"] == told["published"] == sum(told["through"].values())
    assert told["through"]["a"] == told["switched_row"]
    assert all(told["through"].values())
    assert told["cut_s"] < told["healed_s"] < told["seconds"]
    assert told["configuration"] >= 3  # The first that is guarded, and at least the takeover.
    assert "the link of a is cut" in " ".join(each["what"] for each in told["events"])
    after = told["tentative"]
    faults = [each["fault"] for each in after["checks"]]
    in_time = faults.pop(X_CHECK) == ""
    assert faults == [""] * 5
    assert (shown.exit_code, told["fine"]) == ((0, True) if in_time else (1, False))
    assert after["tentative_windows"] > 0
    assert after["cut_s"] < after["healed_s"] < after["corrected_s"] < after["seconds"]
    assert [state for _, state in after["states"]][-1] == "stable"
    if importlib.util.find_spec("matplotlib") is not None:
        assert "<svg" in plot.read_text()


# --- the checks ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arrivals", "says"),
    [
        (ARRIVALS, ""),
        ([Arrival(0, 0, [0, 1]), Arrival(1, 2, [3])], "row 2 is missing: 3 came"),
        ([Arrival(0, 0, [0, 1]), Arrival(1, 2, [1, 2])], "row 1 came again after row 1"),
        ([Arrival(0, 0, [0, 2, 1])], "row 1 is missing: 2 came"),
        (
            [Arrival(0, 0, [0, 1]), Arrival(1, 3, [2])],
            "row 3 by the node's count came where 2 was due",
        ),
        (
            [Arrival(0, 0, [0, 1]), Arrival(1, 1, [2])],
            "row 1 by the node's count came where 2 was due",
        ),
    ],
    ids=["none", "gap", "repeat", "disorder", "gap in count", "repeat in count"],
)
def test_a_gap_and_a_repeat_are_found(arrivals: list[Arrival], says: str) -> None:
    assert fault_in(arrivals) == says


REPEAT = [*ARRIVALS[:2], Arrival(3.0, 3, [2, 3, 4, 5]), *ARRIVALS[3:]]
BACK = sighting(5.6, "a", 8, following=["b"])
WRONG: list[tuple[str, Mapping[str, Any]]] = [
    ("gap", {"arrivals": [*ARRIVALS[:2], *ARRIVALS[3:]]}),
    ("repeat", {"arrivals": REPEAT}),
    ("end", {"arrivals": ARRIVALS[:3]}),
    ("lost", {"lost_rows": 1}),
    ("other rows", {"comparison": TableComparison(rows=7, expected=7, example="row 1: ...")}),
    ("never switched", {"sightings": SIGHTINGS[:2]}),
    ("switched back", {"sightings": [*SIGHTINGS, BACK]}),
    ("switched before the cut", {"cut_s": 3.5}),
    ("unseen", {"healed_s": 6.0}),
    ("not back", {"sightings": [*SIGHTINGS[:3], replace(SIGHTINGS[3], following=[])]}),
]


@pytest.mark.parametrize(("name", "changes"), WRONG, ids=[name for name, _ in WRONG])
def test_what_is_wrong_ends_with_1(
    name: str, changes: Mapping[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert FINE.fine
    monkeypatch.setattr(partition_demo, "ran", lambda options, screen: replace(FINE, **changes))
    asked = ["demo", "partition", "--plot", str(tmp_path / "rows.svg")]
    assert CliRunner().invoke(main, asked).exit_code == 1
    assert json.loads(CliRunner().invoke(main, [*asked, "--json"]).stdout)["fine"] is False


def test_the_row_at_which_it_was_switched_divides_the_rows() -> None:
    assert FINE.switched_row == 3
    assert FINE.through == {"a": 3, "b": 4}
    assert FINE.silence_s == (0.5, 3.0)
    assert replace(FINE, sightings=SIGHTINGS[:2]).through == {"a": 7, "b": 0}


def test_what_the_second_part_found_counts_too() -> None:
    assert replace(FINE, tentative=AFTER).fine
    wrong = replace(AFTER, tentative_left=1)
    assert not replace(FINE, tentative=wrong).fine
    assert replace(FINE, tentative=wrong).to_json()["tentative"]["fine"] is False


# --- what is shown ------------------------------------------------------------------------------------


def test_what_is_shown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(partition_demo, "ran", lambda options, screen: FINE)
    shown = CliRunner().invoke(main, ["demo", "partition", "--plot", str(tmp_path / "rows.svg")])
    assert shown.exit_code == 0, shown.output
    assert "7 rows published, 7 at r: 3 through a, 4 through b" in shown.output
    assert "0.50 s before the cut, 3.00 s from then on" in shown.output
    assert sum(line.endswith("yes │") for line in shown.output.splitlines()) == 5
    wrong = replace(FINE, arrivals=REPEAT)
    monkeypatch.setattr(partition_demo, "ran", lambda options, screen: wrong)
    shown = CliRunner().invoke(main, ["demo", "partition", "--plot", str(tmp_path / "rows.svg")])
    assert "row 2 came again after row 2" in shown.output


def test_both_parts_are_shown_and_drawn(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(partition_demo, "ran", lambda options, screen: replace(FINE, tentative=AFTER))
    plot = tmp_path / "rows.svg"
    shown = CliRunner().invoke(main, ["demo", "partition", "--plot", str(plot)])
    assert shown.exit_code == 0, shown.output
    assert sum(line.endswith("yes │") for line in shown.output.splitlines()) == 5 + 6
    assert "7 stable windows at r, 4 tentative ones" in shown.output
    drawn = plot.read_text()
    assert all(f"<!-- {label} -->" in drawn for label in ("number of the row", "number of the window"))


def test_a_bound_that_is_none_is_refused_before_anything_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_demo, "ran", lambda options, screen: pytest.fail("it ran"))
    shown = CliRunner().invoke(main, ["demo", "partition", "--delay", "soon"])
    assert shown.exit_code == 1
    assert "delay: 'soon' is no duration" in shown.output


def test_it_is_drawn(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(partition_demo, "ran", lambda options, screen: FINE)
    for name in ("rows.svg", "rows.png"):
        plot = tmp_path / name
        shown = CliRunner().invoke(main, ["demo", "partition", "--plot", str(plot)])
        assert f"drawn: {plot}" in shown.output.replace("\n", "")
        assert plot.stat().st_size > 1000


def test_without_matplotlib_it_says_so_and_goes_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(partition_demo, "ran", lambda options, screen: FINE)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    plot = tmp_path / "rows.svg"
    shown = CliRunner().invoke(main, ["demo", "partition", "--plot", str(plot)])
    assert shown.exit_code == 0, shown.output
    assert "medusa-streams[plot]" in shown.output
    assert not plot.exists()


def test_a_plot_of_another_kind_is_refused_before_anything_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_demo, "ran", lambda options, screen: pytest.fail("it ran"))
    shown = CliRunner().invoke(main, ["demo", "partition", "--plot", "rows.pdf"])
    assert shown.exit_code == 1
    assert "a plot is a .png or a .svg" in shown.output


def test_what_can_not_be_carried_out_ends_with_1_and_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(options: object, screen: object) -> PartitionOutcome:
        raise LinkError("no network namespaces here", hint="--network relays", code="link.network")

    monkeypatch.setattr(partition_demo, "ran", fails)
    shown = CliRunner().invoke(main, ["demo", "partition", "--network", "namespaces"])
    assert shown.exit_code == 1
    assert "hint: --network relays" in shown.output


# --- interrupted --------------------------------------------------------------------------------------


class Running:
    """A demonstration under way that doesn't come to its cut."""

    def __init__(self, network: str, folder: Path) -> None:
        self.folder = folder
        command = [sys.executable, "-m", "medusa.cli.main", "demo", "partition", "--network", network]
        self.process = subprocess.Popen(
            [*command, "--rest", "3600", "--plot", str(folder / "rows.svg")],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            env={**os.environ, "TMPDIR": str(folder)},
        )

    def read_until(self, pattern: str) -> None:
        """Lines up to one that matches."""
        assert self.process.stdout is not None
        said = []
        for line in self.process.stdout:
            said.append(line)
            if re.search(pattern, line):
                return
        raise AssertionError(f"no line like {pattern!r} in {said}")

    def nodes(self) -> list[int]:
        """Its node processes: those whose command line names their configuration in our folder."""
        found = []
        for each in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                line = (each / "cmdline").read_text()
                if str(self.folder) in line and "\0node\0" in line:
                    found.append(int(each.name))
        return found


def space_of(pid: int) -> Path:
    """The network namespace of a process, as the command ip keeps it."""
    command = ["ip", "netns", "identify", str(pid)]
    found = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=True)
    return Path("/run/netns") / found.stdout.strip()


@pytest.fixture
def short(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder whose name is short enough for the path of a socket."""
    return tmp_path_factory.mktemp("p")


@pytest.mark.system
@pytest.mark.parametrize("network", KINDS)
def test_an_interruption_leaves_nothing(network: str, short: Path) -> None:
    if network == "namespaces":
        needs_network()
    running = Running(network, short)
    try:
        running.read_until("rows flow")
        assert len(running.nodes()) == 3
        spaces = [space_of(pid) for pid in running.nodes()] if network == "namespaces" else []
        assert all(each.name and each.exists() for each in spaces)
        os.killpg(running.process.pid, signal.SIGINT)
        assert running.process.wait(DEADLINE_S) == 130
        assert running.nodes() == []
        assert list(short.iterdir()) == []
        assert not any(each.exists() for each in spaces)
    finally:
        for pid in [running.process.pid, *running.nodes()]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        running.process.communicate()
