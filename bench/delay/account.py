"""What came of a run in which inputs failed: how late new rows were, when all was corrected."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.delay.rig import Arrival, Outage

__all__ = ["Came", "Check", "Figures", "came_of", "curve", "figures", "wrong"]

WARM_S = 1.0
"""What the first rows took doesn't count as usual."""

STILL_S = 0.5
"""So much before a failure belongs to the time without."""

STEP_S = 0.05


@dataclass(frozen=True, slots=True)
class Came:
    """Every row that came, in its order: times since rows began to flow, in seconds.

    Attributes:
        at_s: when it came.
        sent_s: when it was published.
        due_s: when it would have left without any failure and without taking time.
        stream, number: which row it is.
        first: it came here first, on either lane.
    """

    at_s: np.ndarray
    sent_s: np.ndarray
    due_s: np.ndarray
    stream: np.ndarray
    number: np.ndarray
    tentative: np.ndarray
    first: np.ndarray


@dataclass(frozen=True, slots=True)
class Check:
    """Something that has to be so; ``fault``: how it isn't, empty where it is."""

    what: str
    fault: str

    def plain(self) -> dict[str, str]:
        return {"what": self.what, "fault": self.fault}


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Of one run; seconds. None: there was nothing of it.

    Attributes:
        calm_s, latest_s, after_s: largest time from publication to the first arrival of a new row: before any
            failure, from then on until all is stable, and afterwards. Of streams that didn't fail alone.
        healing_s: the same as ``latest_s``, of rows published while corrections came.
        added_s: how much later a row was than it would have been, at most, over what is usual.
        first_tentative_s: age of the first tentative row, when it came.
        tentative_rows: that came.
        begun_s: from the end of the last failure until the first correction came.
        corrected_s: from there until the stream was said to be stable.
        backlog_s: of stream time, which had to be corrected.
        speed: of the corrections, in input rates.
        undo_s: age of the first correction, when it came: what the papers call the latency of the undo.
    """

    calm_s: float
    latest_s: float
    after_s: float | None
    healing_s: float | None
    added_s: float
    first_tentative_s: float | None
    tentative_rows: int
    begun_s: float | None
    corrected_s: float | None
    backlog_s: float
    speed: float | None
    undo_s: float | None


def came_of(
    arrivals: Sequence[Arrival],
    of: Callable[[Any], tuple[np.ndarray, np.ndarray, np.ndarray]],
    due_s: Callable[[np.ndarray], np.ndarray],
) -> Came:
    """Put together what came.

    Args:
        of: streams, numbers and times of publication (us) of the rows of a batch.
        due_s: when rows published at these times would leave, in seconds.
    """
    parts = [(each, *of(each.batch)) for each in arrivals if each.batch.num_rows]
    stream, number, sent_us = (np.concatenate([part[place] for part in parts]) for place in (1, 2, 3))
    counts = [each.batch.num_rows for each, *_ in parts]
    name = stream.astype(np.int64) << 40 | number
    first = np.zeros(len(name), bool)
    first[np.unique(name, return_index=True)[1]] = True
    sent_s = sent_us / 1e6
    return Came(
        np.repeat([each.at_s for each, *_ in parts], counts),
        sent_s,
        due_s(sent_s),
        stream,
        number,
        np.repeat([each.tentative for each, *_ in parts], counts),
        first,
    )


def wrong(came: Came, published: Mapping[int, int]) -> str:
    """How the stable rows aren't those of a run without failures; empty: they are.

    Args:
        published: rows of each stream.
    """
    stable = ~came.tentative
    for stream, count in published.items():
        numbers = came.number[stable & (came.stream == stream)]
        if len(numbers) != count or (numbers != np.arange(count)).any():
            twice = len(numbers) - len(np.unique(numbers))
            return (
                f"stream {stream}: {len(numbers):,} stable rows of {count:,} that were published, "
                f"{twice:,} of them again"
            )
    times = came.sent_s[stable]
    back = np.flatnonzero(np.diff(came.due_s[stable]) < 0)
    return f"a stable row of {times[back[0] + 1]:.3f} s came after one of a later bucket" if len(back) else ""


def figures(
    came: Came, outages: Sequence[Outage], states: Sequence[tuple[float, str]], failed: Sequence[int]
) -> Figures:
    """What is said of a run.

    Args:
        outages: not none.
        states: (when, state) as the reader was told.
        failed: streams that failed.
    """
    begin_s = min(each.begin_s for each in outages)
    end_s = max(each.end_s for each in outages)
    stable_s = _stable_s(came, states, begin_s, end_s)
    new = came.first & ~np.isin(came.stream, failed)
    late = came.at_s - came.due_s
    age = came.at_s - came.sent_s
    calm = new & (came.at_s < begin_s) & (came.sent_s >= WARM_S)
    hit = new & (came.at_s >= begin_s) & (came.sent_s < stable_s)
    after = new & (came.sent_s >= stable_s + STILL_S)
    healing = new & (came.sent_s >= end_s) & (came.sent_s < stable_s)
    tentative = np.flatnonzero(came.tentative)
    corrections = ~came.tentative & (came.at_s >= end_s)
    held = np.flatnonzero(
        corrections & (came.sent_s < end_s - STILL_S) & (came.sent_s > begin_s - 2 * STILL_S)
    )
    begun_s = float(came.at_s[held[0]]) if len(held) else None
    return Figures(
        calm_s=_most(age[calm]) or 0.0,
        latest_s=_most(age[hit]) or 0.0,
        after_s=_most(age[after]),
        healing_s=_most(age[healing]),
        added_s=max(0.0, (_most(late[hit]) or 0.0) - (_most(late[calm]) or 0.0)),
        first_tentative_s=float(age[tentative[0]]) if len(tentative) else None,
        tentative_rows=len(tentative),
        begun_s=None if begun_s is None else begun_s - end_s,
        corrected_s=None if begun_s is None else max(0.0, stable_s - begun_s),
        backlog_s=end_s - begin_s,
        speed=_speed(came, held),
        undo_s=float(age[held[0]]) if len(held) else None,
    )


def _most(values: np.ndarray) -> float | None:
    return float(values.max()) if len(values) else None


def _stable_s(came: Came, states: Sequence[tuple[float, str]], begin_s: float, end_s: float) -> float:
    """When the reader was told that all is stable, and had what was published before the failure was over.

    Where it was never told otherwise: when it had that. What fails later, of itself, isn't waited for.
    """
    backlog = ~came.tentative & (came.sent_s < end_s)
    had_s = max(end_s, _most(came.at_s[backlog]) or 0.0)
    before = [state for at, state in states if at <= had_s]
    if not before or before[-1] == "stable":
        return had_s
    told = [at for at, state in states if at > had_s and state == "stable"]
    assert told, "the stream was never said to be stable again"
    return told[0]


def _speed(came: Came, held: np.ndarray) -> float | None:
    """How much stream time the corrections of the backlog passed in a second; None: too few came to say."""
    if len(held) < 2:
        return None
    took_s = float(came.at_s[held[-1]] - came.at_s[held[0]])
    spanned_s = float(came.sent_s[held[-1]] - came.sent_s[held[0]])
    return spanned_s / took_s if took_s > 0.005 else None


def curve(came: Came, stream: int) -> list[tuple[float, int, bool]]:
    """The papers' plot of one stream: when which number came, and whether it was tentative; thinned."""
    found = []
    for tentative in (False, True):
        mine = (came.stream == stream) & (came.tentative == tentative)
        at_s, number = came.at_s[mine], came.number[mine]
        # One point for each step of both: what was held up comes at one moment.
        step = np.round(at_s / STEP_S).astype(np.int64)
        size = max(1, int(came.number.max()) // 400) if len(came.number) else 1
        places = np.unique(np.stack([step, number // size]), axis=1, return_index=True)[1]
        found += [(round(float(at_s[place]), 3), int(number[place]), tentative) for place in places]
    return sorted(found)
