"""Kills of an owner amid something: a small real run of each, whose rows are all right in the end."""

from __future__ import annotations

import pytest

from bench import machine, takeovers


@pytest.mark.system
@pytest.mark.parametrize("way", ["moving", "splitting", "checkpointing"])
def test_an_owner_is_killed_amid_something(way: str) -> None:
    made = takeovers.measure((100,), 1, [way])
    [found] = made["sizes"]["100"][way]
    assert found["pause_s"] > 0
    assert takeovers.WAYS[way][0] in takeovers.table(made)


def test_a_table_says_how_many_owners_had_to_come_back() -> None:
    runs = [{"pause_s": 0.3, "usual_s": 0.01, "returned": each} for each in (0.0, 1.0, 1.0)]
    found = {"kills": 3, "load": 0.5, "sizes": {"1000": {"splitting": runs}}, **machine.describe()}
    [line] = [line for line in takeovers.table(found).splitlines() if line.startswith("| 1,000")]
    assert "the owner is lost in a split, and came back: 2 of 3" in line
