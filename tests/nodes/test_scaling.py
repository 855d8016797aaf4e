"""The policy of scaling against a queueing model that knows nothing of its formula."""

from __future__ import annotations

import random
from itertools import pairwise
from math import pi, sin

import pytest

from medusa.nodes.scaling.policy import Resize, ScaleRules, WorkPolicy
from medusa.nodes.scaling.true_rates import BoxRates, work_of

SECOND_US, LOOK_S, TAKES_S, SPAN_S = 1_000_000, 5, 3, 600
INPUTS = {"first": ["source"], "second": ["first"], "third": ["first", "second"]}
KINDS = ("steady", "step", "ramp", "daily", "spikes", "skew")


class Queues:
    """Parts with a queue each, second by second. Rows of a part that is full wait; those behind get fewer."""

    def __init__(self, dice: random.Random, skew: bool) -> None:
        self.dice = dice
        self.cost_s = {box: dice.uniform(0.2e-3, 1.2e-3) for box in INPUTS}
        self.gives = {box: dice.uniform(0.2, 1.2) for box in INPUTS}
        self.weights = [1 / (n + 1) if skew else 1.0 for n in range(240)]
        dice.shuffle(self.weights)
        self.queues = {box: [0.0] for box in INPUTS}
        self.seen = {box: [0.0, 0.0, 0.0] for box in INPUTS}
        self.came, self.seconds = 0.0, 0

    def second(self, offered: float) -> None:
        leaves = {"source": offered}
        self.came, self.seconds = self.came + offered, self.seconds + 1
        for box, above in INPUTS.items():
            queues, comes, total = self.queues[box], sum(leaves[each] for each in above), sum(self.weights)
            done = 0.0
            for part in range(len(queues)):
                share = sum(self.weights[part * 240 // len(queues) : (part + 1) * 240 // len(queues)]) / total
                queues[part] += comes * share
                ran = min(queues[part], 1 / self.cost_s[box])
                queues[part] -= ran
                done += ran
            leaves[box] = done * self.gives[box]
            for place, grown in enumerate((done, leaves[box], done * self.cost_s[box])):
                self.seen[box][place] += grown

    def measured(self) -> tuple[dict[str, float], dict[str, BoxRates]]:
        """Since the last time, each figure some percent wrong."""
        n = self.seconds
        wrong = {box: [each / n * self.dice.uniform(0.98, 1.02) for each in self.seen[box]] for box in INPUTS}
        offered = self.came / n
        self.seen, self.came, self.seconds = {box: [0.0] * 3 for box in INPUTS}, 0.0, 0
        return {"source": offered}, {
            box: BoxRates(rows_in_per_s=a, rows_out_per_s=b, busy_share=c) for box, (a, b, c) in wrong.items()
        }

    def resize(self, box: str, parts: int) -> None:
        self.queues[box] = [sum(self.queues[box]) / parts] * parts


def load(kind: str, dice: random.Random) -> list[float]:
    low, high = dice.uniform(200, 800), dice.uniform(1_500, 4_000)
    at = dice.randrange(150, 300)
    if kind == "step":
        first, then = (low, high) if dice.random() < 0.5 else (high, low)
        return [first if second < at else then for second in range(SPAN_S)]
    if kind == "ramp":
        return [low + (high - low) * min(second / 400, 1) for second in range(SPAN_S)]
    if kind == "daily":
        return [
            low + (high - low) * (1 - sin(2 * pi * second / 500 + pi / 2)) / 2 for second in range(SPAN_S)
        ]
    if kind == "spikes":
        return [high if second % 120 < 4 else low for second in range(SPAN_S)]
    return [high] * SPAN_S


def run(seed: int, rules: ScaleRules) -> tuple[str, list[float], list[tuple[int, Resize, int]], Queues]:
    """The kind of load, it, the decisions (second, what, parts before) and the end."""
    dice, kind = random.Random(seed), KINDS[seed % len(KINDS)]
    offered, model, policy = load(kind, dice), Queues(dice, kind == "skew"), WorkPolicy(rules)
    acts: list[tuple[int, Resize, int]] = []
    due: list[tuple[int, Resize]] = []
    for second, rate in enumerate(offered):
        for _, resize in (each for each in due if each[0] == second):
            model.resize(resize.box, resize.parts)
        model.second(rate)
        if (second + 1) % LOOK_S == 0:
            parts = {box: len(queues) for box, queues in model.queues.items()}
            sources, rates = model.measured()
            for resize in policy.look(second * SECOND_US, work_of(INPUTS, sources, rates), parts):
                acts.append((second, resize, parts[resize.box]))
                due.append((second + TAKES_S, resize))
    return kind, offered, acts, model


def faults(seed: int, rules: ScaleRules) -> list[str]:
    kind, offered, acts, model = run(seed, rules)
    found = []
    changes = [s for s in range(1, SPAN_S) if offered[s] != offered[s - 1]] if kind == "step" else []
    for box in INPUTS:
        own = [(second, resize.parts - was) for second, resize, was in acts if resize.box == box]
        if kind in ("steady", "skew") and len(own) > 1:
            found.append(f"{box}: {len(own)} steps on a steady load")
        after = [each for each in own if changes and each[0] >= changes[0]]
        if kind == "step" and (len(after) > 2 or len(own) - len(after) > 1):
            found.append(f"{box}: {len(own) - len(after)} steps before, {len(after)} after a step")
        for (before, one), (then, other) in pairwise(own):
            span = offered[max(before - 2 * LOOK_S, 0) : then + 1]
            if one * other < 0 and max(span) < 1.1 * min(span):
                found.append(f"{box}: {one:+d} at {before} s, {other:+d} at {then} s, by the same load")
        if kind in ("steady", "step", "ramp") and max(model.queues[box]) > offered[-1]:
            found.append(f"{box}: {max(model.queues[box]):.0f} rows wait in the end")
    return found


def seeds() -> list[object]:
    full = [pytest.mark.full, pytest.mark.issue(22)]
    return [pytest.param(n * 20, id=str(n), marks=[] if n < 3 else full) for n in range(50)]


@pytest.mark.parametrize("first", seeds())
def test_a_steady_load_is_met_in_one_step_a_step_in_two_and_nothing_oscillates(first: int) -> None:
    rules = ScaleRules(parts_max=64)
    assert [(seed, what) for seed in range(first, first + 20) for what in faults(seed, rules)] == []


def test_a_policy_without_room_between_its_marks_is_noticed() -> None:
    rules = ScaleRules(high=0.5, low=0.499, target=0.5, looks=1, rest_us=0, parts_max=64)
    assert any(faults(seed, rules) for seed in range(60))


def test_one_pass_knows_what_boxes_behind_a_slow_one_need() -> None:
    """``slow`` does 100 of 400 rows a second; what comes behind it is at rest three quarters of the time."""
    rates = {
        "slow": BoxRates(rows_in_per_s=100, rows_out_per_s=200, busy_share=1.0),
        "behind": BoxRates(rows_in_per_s=200, rows_out_per_s=1, busy_share=0.25),
    }
    work = work_of({"slow": ["a"], "behind": ["slow"], "unknown": ["behind"]}, {"a": 400}, rates)
    assert work == {"slow": 4.0, "behind": 1.0}


def test_what_growing_leaves_is_above_the_low_mark_and_below_the_high_one() -> None:
    rules = ScaleRules(looks=1, rest_us=0, parts_max=1000)
    for thousandths in range(701, 20_000, 7):
        work = thousandths / 1000
        [resize] = WorkPolicy(rules).look(0, {"box": work}, {"box": 1})
        assert rules.low < work / resize.parts < rules.high


def test_only_so_many_looks_in_a_row_count_and_what_was_resized_rests() -> None:
    policy = WorkPolicy(ScaleRules(looks=2, rest_us=15 * SECOND_US))

    def look(second: int, work: float, parts: int) -> list[int]:
        found = policy.look(second * SECOND_US, {"box": work}, {"box": parts})
        return [each.parts for each in found]

    assert look(0, 1.0, 1) == []
    assert look(5, 0.5, 1) == []  # Between the marks: what was seen before counts no more.
    assert look(10, 1.0, 1) == []
    assert look(15, 0.1, 2) == []  # The other way.
    assert look(20, 1.0, 1) == []
    assert look(25, 1.0, 1) == [2]
    assert [look(second, 4.0, 2) for second in (30, 35)] == [[], []]
    assert look(40, 4.0, 2) == []  # It has rested, and this is the first look that counts.
    assert look(45, 4.0, 2) == [8]
