"""When an input that is back needs no fork in its place any more."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest

from medusa.elements import END_US, START_US
from medusa.nodes.consistency.approach import Approach
from medusa.nodes.consistency.missing_inputs import MissingInputs
from medusa.query.delay import fork_after_us
from medusa.wire.link.automaton import ReceiverState

MS, S = 1_000, 1_000_000
MARGIN_US, PATIENCE_US = 200 * MS, 1_800 * MS
TICK_US = 50 * MS


def over_at_us(promised_us: Callable[[int], int], *, until_us: int = 120 * S) -> int:
    """When it is over, where the fork stands at the time of the clock; -1: never."""
    approach = Approach(MARGIN_US, PATIENCE_US)
    for now_us in range(0, until_us, TICK_US):
        if approach.is_over(now_us, promised_us(now_us), now_us):
            return now_us
    return -1


def test_one_that_is_where_the_fork_stands_is_near_at_once() -> None:
    assert Approach(MARGIN_US, PATIENCE_US).is_over(5, 7, 7)
    assert Approach(MARGIN_US, PATIENCE_US).is_over(5, 8, 7)


@pytest.mark.parametrize("lag_us", [10 * MS, 60 * MS, 150 * MS])
def test_one_that_lags_by_less_than_the_margin_is_near_once_that_shows(lag_us: int) -> None:
    assert 0 < over_at_us(lambda now_us: now_us - lag_us) <= lag_us + TICK_US


@pytest.mark.parametrize("lag_us", [250 * MS, 300 * MS, 400 * MS])
def test_one_that_always_lags_by_less_than_a_missing_one_is_near_after_some_marks(lag_us: int) -> None:
    """What it brings isn't waited for any longer than X allows, and it never comes nearer."""
    at_us = over_at_us(lambda now_us: now_us - lag_us)
    assert 3 * lag_us < at_us <= 4 * (lag_us + TICK_US)


def test_one_that_is_late_now_more_and_now_less_is_near_after_some_marks() -> None:
    """Found by seed 7 of ``delay``: its rows are always older than those of the other source."""
    lags_us = [300 * MS, 500 * MS, 350 * MS, 450 * MS]
    at_us = over_at_us(lambda now_us: now_us - lags_us[now_us // (600 * MS) % 4])
    assert 0 < at_us <= 4 * S


@pytest.mark.parametrize("speed", [1.1, 1.3, 2, 5, 20])
def test_one_that_catches_up_is_waited_for_until_it_is_near(speed: float) -> None:
    behind_us = 6 * S
    met_us = behind_us / (speed - 1)
    at_us = over_at_us(lambda now_us: min(now_us, int(now_us * speed) - behind_us))
    left_us = max(behind_us - at_us * (speed - 1), 0)
    assert left_us <= MARGIN_US, "it is within the margin of the fork then"
    assert at_us <= met_us + MARGIN_US + TICK_US


@pytest.mark.parametrize(
    "promised_us",
    [lambda now_us: now_us - 5 * S, lambda now_us: -5 * S, lambda now_us: now_us // 2 - 5 * S],
    ids=["always late", "brings nothing", "slower and slower"],
)
def test_one_that_comes_no_nearer_is_waited_for_no_longer_than_a_missing_one(
    promised_us: Callable[[int], int],
) -> None:
    assert PATIENCE_US <= over_at_us(promised_us) <= PATIENCE_US + TICK_US


def test_one_that_brings_five_seconds_at_a_time_is_near_when_it_has() -> None:
    assert 0 <= over_at_us(lambda now_us: now_us // (5 * S) * 5 * S - 1) <= PATIENCE_US + TICK_US


def test_it_is_looked_again_when_patience_is_over() -> None:
    approach = Approach(MARGIN_US, PATIENCE_US)
    assert approach.due_at_us() is None
    assert not approach.is_over(S, 0, 9 * S)
    assert approach.due_at_us() == S + PATIENCE_US
    assert not approach.is_over(S + PATIENCE_US, 5 * S, 10 * S)
    assert approach.due_at_us() == S + 2 * PATIENCE_US
    assert approach.is_over(S + 2 * PATIENCE_US, 6 * S, 11 * S)


def test_a_stream_whose_time_goes_slower_than_the_clock_is_judged_by_its_own() -> None:
    approach, over_us = Approach(MARGIN_US, PATIENCE_US), 0
    for now_us in range(0, 20 * S, TICK_US):
        stood_us = now_us // 100
        if not over_us and approach.is_over(now_us, min(stood_us, stood_us * 2 - 60 * MS), stood_us):
            over_us = now_us
    assert 5 * S < over_us <= 6 * S, "it is there after 6 s"


# --- of the inputs of a fragment ----------------------------------------------------------------------


class Fake:
    """An input whose sender is heard and stable, and has brought all that it had when it was back."""

    def __init__(self, promised_us: int, source: str = "b", by: str = "n") -> None:
        self.source, self.by, self.judged, self.gone = source, by, True, False
        self.silent_since_us = None
        self.receiver = SimpleNamespace(
            tentative=SimpleNamespace(state="stable", lost=False, fork=0),
            state=ReceiverState.FLOWING,
            backlog_over=True,
            boundary_us=promised_us,
        )


@pytest.mark.parametrize(
    ("promised_us", "stands_us", "waits"),
    [(S, 9 * S, True), (int(START_US), 9 * S, False), (S, None, False)],
    ids=["far", "promises nothing", "no fork goes on without it"],
)
def test_an_input_that_is_back_is_behind_until_it_is_near(
    promised_us: int, stands_us: int | None, waits: bool
) -> None:
    broken, input = {"n": 0}, Fake(promised_us)
    inputs: Any = {("b", "n"): input}
    missing = MissingInputs(inputs, 2 * S, broken.get, lambda source: stands_us)
    missing.look(2 * S)
    assert missing.missed() == [input]
    broken.clear()
    missing.look(3 * S)
    assert missing.missed() == []
    assert missing.behind() == ([input] if waits else [])
    assert missing.calm is not waits
    assert missing.due_at_us() == (3 * S + PATIENCE_US if waits else None)
    input.receiver.boundary_us = 9 * S
    missing.look(3 * S + MARGIN_US)
    assert missing.behind() == []
    assert missing.due_at_us() is None


@pytest.mark.parametrize("silent_us", [1, MARGIN_US, MARGIN_US + 1])
def test_who_only_attaches_anew_has_come_as_near_as_before(silent_us: int) -> None:
    """Found by seed 2055 of ``delay``: a source that lags by itself attached anew before that could show."""
    broken, input = {"n": 0}, Fake(S)
    inputs: Any = {("b", "n"): input}
    missing = MissingInputs(inputs, 2 * S, broken.get, lambda source: 9 * S)
    missing.look(2 * S)
    broken.clear()
    missing.look(3 * S)
    assert missing.due_at_us() == 3 * S + PATIENCE_US
    broken["n"] = 3 * S
    missing.look(3 * S)
    broken.clear()
    missing.look(3 * S + silent_us)
    begun_us = 3 * S + (silent_us if silent_us > MARGIN_US else 0)
    assert missing.due_at_us() == begun_us + PATIENCE_US


def test_one_that_is_silent_again_before_it_was_near_is_looked_at_when_it_will_be_missing() -> None:
    broken, input = {"n": 0}, Fake(S)
    inputs: Any = {("b", "n"): input}
    missing = MissingInputs(inputs, 2 * S, broken.get, lambda source: 9 * S)
    missing.look(2 * S)
    broken.clear()
    missing.look(3 * S)
    assert missing.behind() == [input]
    broken["n"] = now_us = 4 * S
    missing.look(now_us)
    while not missing.missed():
        due_us = missing.due_at_us()
        assert due_us is not None
        assert due_us > now_us, "a node that is woken for nothing spins"
        now_us = due_us
        missing.look(now_us)
    assert now_us == 4 * S + fork_after_us(2 * S)


def test_silence_counts_from_when_one_was_heard_last_though_that_is_seen_late() -> None:
    """A node that stood still may look what flows before it looks who was heard."""
    input, broken = Fake(S), dict[str, int]()
    input.receiver.state = ReceiverState.ATTACHING
    inputs: Any = {("b", "n"): input}
    missing = MissingInputs(inputs, 2 * S, broken.get, lambda source: None)
    missing.look(3 * S)
    assert missing.missed() == []
    broken["n"] = S
    missing.look(3 * S)
    assert missing.missed() == [input]
    assert missing.missed_since(input) == (True, S)
    broken["n"] = 2 * S
    missing.look(4 * S)
    assert missing.missed_since(input) == (True, S), "it has brought nothing since"


def behind_beside(
    other: Fake, *others: Fake, broken_us: Mapping[str, int] = MappingProxyType({})
) -> tuple[bool, Callable[[int, int], bool]]:
    """Whether an input is, where no fork is and it has promised a second; and what tells it later on."""
    broken, input = {"n": 0, **broken_us}, Fake(S)
    inputs: Any = {(each.source, each.by): each for each in [input, other, *others]}
    meets = dict.fromkeys("bc", frozenset("bc")) | {"d": frozenset("d")}
    missing = MissingInputs(inputs, 4 * S, broken.get, lambda source: None, together=meets)
    missing.look(4 * S)
    assert input in missing.missed()
    del broken["n"]

    def later(now_us: int, promised_us: int) -> bool:
        input.receiver.boundary_us = promised_us
        missing.look(now_us)
        return input in missing.behind()

    return later(4 * S, S), later


def test_where_no_fork_is_an_input_that_is_back_is_behind_until_it_is_near_those_that_wait_for_it() -> None:
    """Policies that suspend new rows have none: what waits for it is held up all the same."""
    is_behind, later = behind_beside(Fake(9 * S, "c", "m"), Fake(3 * S, "d", "o"))
    assert is_behind
    assert later(4 * S + MARGIN_US // 2, 8 * S)
    assert not later(4 * S + MARGIN_US, 9 * S)


@pytest.mark.parametrize(
    "others",
    [
        [Fake(9 * S, "d", "m")],
        [Fake(S // 2, "c", "m"), Fake(9 * S, "c", "o")],
        [Fake(int(START_US), "c", "m")],
        [Fake(int(END_US), "c", "m")],
    ],
    ids=["leads elsewhere", "one is no further", "promises nothing", "has ended"],
)
def test_for_an_input_that_is_back_nobody_waits_beside(others: list[Fake]) -> None:
    is_behind, _ = behind_beside(*others)
    assert not is_behind


def test_who_is_not_well_says_nothing_of_how_far_one_is_to_come() -> None:
    ill = Fake(S // 2, "c", "o")
    ill.receiver.tentative.state = "up_failure"
    silent = Fake(S // 2, "c", "p")
    assert behind_beside(Fake(9 * S, "c", "m"), ill, silent, broken_us={"p": 4 * S})[0]
