"""What the inputs of a fragment had promised a while ago: so far is one lifted where new rows wait. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from medusa.elements import START_US
from medusa.nodes.fragment.inputs import FragmentInput

__all__ = ["PromiseHistory"]

STEPS = 64
"""Promises of a step count as of its last one. Too few: new rows wait longer than they are to, which the
margin has to make up for; too many: memory, and the fork is woken for each."""


class PromiseHistory:
    """Of one fragment.

    Args:
        span_us: so far back it can be asked.
        before: what inputs had promised before anything is noted.
    """

    def __init__(self, span_us: int, before: Mapping[FragmentInput, int]) -> None:
        self._span_us = span_us
        self._step_us = max(span_us // STEPS, 1)
        self._before = dict(before)
        self._noted: dict[FragmentInput, deque[tuple[int, int]]] = {}
        """Input -> when it had promised what, in order."""

    def came(self, now_us: int, input: FragmentInput, time_us: int) -> None:
        """It promises this; less than before adds nothing."""
        noted = self._noted.setdefault(input, deque())
        if time_us <= (noted[-1][1] if noted else START_US):
            return
        if noted and noted[-1][0] // self._step_us == now_us // self._step_us:
            noted.pop()
        noted.append((now_us, time_us))
        while len(noted) > 1 and noted[1][0] <= now_us - self._span_us:
            noted.popleft()

    def look(self, inputs: Mapping[tuple[str, str], FragmentInput]) -> None:
        """Only these inputs are left."""
        if len(self._noted) > len(inputs) or len(self._before) > len(inputs):
            there = set(inputs.values())
            self._noted = {each: noted for each, noted in self._noted.items() if each in there}
            self._before = {each: time_us for each, time_us in self._before.items() if each in there}

    def as_of(self, at_us: int, input: FragmentInput) -> int:
        """What an input had promised at this time."""
        promised_us = self._before.get(input, START_US)
        for came_us, time_us in self._noted.get(input, ()):
            if came_us > at_us:
                break
            promised_us = time_us
        return promised_us

    def after_us(self, at_us: int) -> int | None:
        """When the first promise after this time came; None: none has."""
        times = (came_us for noted in self._noted.values() for came_us, _ in noted if came_us > at_us)
        return min(times, default=None)
