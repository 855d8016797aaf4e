"""A node that only passes rows looks for what it has to do next in few places, and misses nothing."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from medusa.nodes.node import NodeMind
from medusa.sim.scenarios import run_scenario

SEEDS = [("nodes", 0), ("standby", 1), ("comeback", 2), ("forks", 0), ("returns", 2)]


@pytest.mark.parametrize(("scenario", "seed"), SEEDS)
def test_what_is_not_about_rows_is_never_due_before_the_node_looks(
    scenario: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest, seen = NodeMind._turned, Counter[str]()

    def looked_at(self: Any, now_us: int, *, rows: bool = False) -> None:
        honest(self, now_us, rows=rows)
        if rows and self._only_rows_flow:
            known_us, fresh_us = self._others_at_us, self._others_wake_at_us(now_us)
            assert fresh_us is None or (known_us is not None and known_us <= fresh_us)
            self._others_at_us = known_us  # What the node itself would go by.
            seen["skipped"] += 1
        seen["all"] += 1

    monkeypatch.setattr(NodeMind, "_turned", looked_at)
    assert run_scenario(scenario, seed).violation == ""
    assert seen["skipped"] > seen["all"] // 50


@pytest.mark.parametrize(("scenario", "seed"), SEEDS)
def test_what_is_not_about_rows_has_nothing_to_do_in_a_tick_for_rows(
    scenario: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest, seen = NodeMind._others_are_due, Counter[str]()

    def looked_at(self: Any, now_us: int) -> bool:
        due = honest(self, now_us)
        seen["all"] += 1
        if not due:
            seen["skipped"] += 1
            others = (
                *(self._saver, self.coordinator, self._definitions, self._queries, self.diverting),
                *(self._reading, self.remotes, self.orders, self._resolving, self.naming),
                *(self.recovery.succession, self.recovery.handovers, self.recovery.coordination),
            )
            before = self.outbox.take()
            for each in others:
                each.tick(now_us)
                did = self.outbox.take()
                assert not did, f"{type(each).__name__} at {self.settings.name}: {did}"
            for effect in before:
                self.outbox.append(effect)
        return due

    monkeypatch.setattr(NodeMind, "_others_are_due", looked_at)
    assert run_scenario(scenario, seed).violation == ""
    assert seen["skipped"] > seen["all"] // 50
