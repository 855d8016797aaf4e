"""What decides in how many parts boxes run may be a user's: the program that runs the node gives it."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import medusa as md

DEADLINE_S = 120


def test_a_node_asks_the_policy_that_it_was_given_with_the_marks_of_its_configuration(tmp_path: Path) -> None:
    made: list[md.ScaleRules] = []
    looked: list[dict[str, int]] = []
    seen = threading.Event()

    class Watching:
        def __init__(self, rules: md.ScaleRules) -> None:
            made.append(rules)

        def look(self, now_us: int, work: Any, parts: Any) -> tuple[md.Resize, ...]:
            looked.append(dict(parts))
            if parts:
                seen.set()
            return ()

    q = md.Query("cars")
    cars = q.source("cars", {"ts": "int64", "seg": "int64"}, time="ts", unit="s")
    q.sink("out", cars.window("10s").group_by("seg").aggregate(n=md.count(), name="per_seg"))
    config = {
        "name": "here",
        "listen": "tcp://127.0.0.1:*",
        "data": str(tmp_path / "here"),
        "scale": {"every": "100ms", "high": 0.6},
    }
    with md.node(config, scale_policy=Watching) as node, node.connect() as fed:
        fed.deploy(q)
        assert seen.wait(DEADLINE_S), "nobody asked it"
    [rules] = made
    assert (rules.high, rules.low) == (0.6, 0.3)
    assert {"per_seg": 1} in looked
