"""Question: what does recovery cost, and how fast is it? See ``bench.recovery``."""

from __future__ import annotations

import pytest

from bench.recovery import chaos, kills, knob, table
from bench.recovery.methods import known_methods
from bench.recovery.sheet import Sheet

SAMPLE_S = 120.0
"""For each: the commands take much longer, and have ``--budget``."""


def test_recovery(request: pytest.FixtureRequest) -> None:
    option = request.config.getoption
    sizes = table.QUICK if option("--quick") else table.FULL
    sheet = Sheet(table.NAME, option("--results"), table.asked_of(sizes), budget_s=SAMPLE_S)
    print(table.COMMAND.write(table.measure(sizes, [*known_methods().values()], sheet), option("--results")))


def test_recovery_kills(request: pytest.FixtureRequest) -> None:
    option = request.config.getoption
    sizes = kills.QUICK if option("--quick") else kills.FULL
    sheet = Sheet(kills.NAME, option("--results"), kills.asked_of(sizes), budget_s=SAMPLE_S)
    print(kills.COMMAND.write(kills.measure(sizes, [*known_methods().values()], sheet), option("--results")))


def test_recovery_knob(request: pytest.FixtureRequest) -> None:
    option = request.config.getoption
    sizes = knob.QUICK if option("--quick") else knob.FULL
    sheet = Sheet(knob.NAME, option("--results"), knob.asked_of(sizes), budget_s=SAMPLE_S)
    print(knob.COMMAND.write(knob.measure(sizes, sheet), option("--results")))


def test_recovery_chaos(request: pytest.FixtureRequest) -> None:
    option = request.config.getoption
    sizes = chaos.QUICK if option("--quick") else chaos.FULL
    sheet = Sheet(chaos.NAME, option("--results"), chaos.asked_of(sizes), budget_s=SAMPLE_S)
    found = chaos.measure(sizes, [*chaos.SCENARIOS.values()], [*known_methods().values()], sheet)
    print(chaos.COMMAND.write(found, option("--results")))
