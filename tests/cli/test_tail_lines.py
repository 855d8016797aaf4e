"""``medusa tail --tentative``: kinds, states and what is undone, of a subscription that the test leads."""

from __future__ import annotations

import json
from collections.abc import Callable

import pyarrow as pa
import pytest
from click.testing import CliRunner

from medusa.cli.main import main
from medusa.cli.screens.tail_lines import TailLines
from medusa.elements import Kind, Train

S = 1_000_000


class Led:
    """What ``TailLines`` asks of a subscription."""

    def __init__(self) -> None:
        self.fork = self.boundary_us = self.missed_rows = 0
        self.told: list[Callable[[str], None]] = []

    def on_state(self, callback: Callable[[str], None]) -> None:
        self.told.append(callback)

    def turns(self, state: str, fork: int) -> None:
        self.fork = fork
        for each in self.told:
            each(state)


def train(kind: Kind, *seconds: int) -> Train:
    times = pa.array([each * S for each in seconds], pa.timestamp("us", tz="UTC"))
    return Train(batch=pa.record_batch({"n": list(seconds)}), times=times, kind=kind)


def through_a_failure(lines: TailLines, of: Led, prints: Callable[[Train], None]) -> None:
    prints(train(Kind.STABLE, 1))
    of.boundary_us = 2 * S
    of.turns("up_failure", 1)
    prints(train(Kind.TENTATIVE, 2, 3))
    prints(train(Kind.TENTATIVE, 4))
    of.missed_rows = 5
    of.turns("up_failure", 2)
    prints(train(Kind.TENTATIVE, 2))
    prints(train(Kind.TENTATIVE, 5))
    of.turns("stabilization", 2)
    prints(train(Kind.STABLE, 2, 3))
    of.boundary_us = 4 * S
    prints(train(Kind.STABLE, 4))
    of.turns("stable", 0)


def shown(*, as_json: bool, capsys: pytest.CaptureFixture[str]) -> list[str]:
    of = Led()
    lines = TailLines(of, as_json=as_json)  # type: ignore[arg-type]

    def prints(each: Train) -> None:
        lines.came(each)
        for row in each.batch.to_pylist():
            print(lines.row(each.kind, row))

    through_a_failure(lines, of, prints)
    return capsys.readouterr().out.splitlines()


def test_what_is_undone_is_told_where_it_happens_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    said = [json.loads(line) for line in shown(as_json=True, capsys=capsys)]
    rows = [(each["kind"], each["row"]["n"]) for each in said if "row" in each]
    assert rows == [
        ("stable", 1),
        *(("tentative", n) for n in (2, 3, 4, 2, 5)),
        *(("stable", n) for n in (2, 3, 4)),
    ]
    between = [tuple(each.values())[:2] for each in said if "row" not in each]
    assert between == [
        ("state", "up_failure"),
        ("undo", 3),
        ("missed", 5),
        ("state", "up_failure"),
        ("state", "stabilization"),
        ("undo", 1),
        ("undo", 1),
        ("state", "stable"),
    ]
    whys = [each["why"] for each in said if each["kind"] == "undo"]
    assert whys == ["another fork begins", "the stable rows count", "their fork is gone"]


def test_as_text_tentative_rows_and_words_between_stand_out_where_there_are_colours(
    capsys: pytest.CaptureFixture[str],
) -> None:
    of = Led()
    lines = TailLines(of, as_json=False)  # type: ignore[arg-type]
    assert lines.row(Kind.STABLE, {"n": 1}) == "stable     n=1"
    guess = lines.row(Kind.TENTATIVE, {"n": 1})
    assert guess.startswith("\x1b[33m")
    assert "tentative  n=1" in guess
    told = shown(as_json=False, capsys=capsys)
    assert "--- up_failure: an input is missing, and what is new is tentative" in told
    assert "--- 3 tentative rows are void, stable up to 1970-01-01 00:00:02 UTC: another fork begins" in told


def test_it_is_in_the_help() -> None:
    told = CliRunner().invoke(main, ["tail", "--help"])
    assert "--tentative" in told.output
