"""What no output waits for is sent to a secondary, and acknowledged, a few at a time; the rest at once."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from medusa.nodes.fragment.change_feed import StandbyChangeFeed
from medusa.nodes.migration.state_sender import GATHER_ITEMS, GATHER_US
from medusa.wire.codec import TrainCodec, decode_frame
from medusa.wire.messages.move import Fed, FedTogether, Got
from tests.nodes.taken_over import PIECE, ROWS, Run
from tests.nodes.test_taken_over import CUT, UNITED, counting, run_of, two_sources, uniting

pytestmark = pytest.mark.usefixtures("trains_apart")

TRAINS = ROWS // PIECE


@dataclass
class Seen:
    """When what was sent between the owner and its secondary, and in how many frames."""

    run: Run
    fed_us: list[int] = field(default_factory=list)
    frames: int = 0
    got: int = 0

    def __post_init__(self) -> None:
        self.run.fed.network.observe(self._sent)

    def _sent(self, tag: str, frames: list) -> None:
        message, _ = decode_frame(frames, peer="m")
        if isinstance(message, Fed | FedTogether):
            count = len(message.fed) if isinstance(message, FedTogether) else 1
            self.fed_us += [self.run.fed.world.now_us] * count
            self.frames += 1
        elif isinstance(message, Got):
            self.got += 1


@pytest.fixture
def one_stream() -> tuple[Run, Seen]:
    run, fragment = run_of(counting(), CUT, {"m": ["s1"]})
    run.until_guarded(fragment)
    return run, Seen(run)


def test_rows_in_their_own_order_go_together_and_are_acknowledged_together(one_stream):
    run, seen = one_stream
    run.publish()
    run.check()
    assert len(seen.fed_us) >= TRAINS
    assert len(set(seen.fed_us)) <= TRAINS // 3
    assert seen.frames <= TRAINS // 3
    assert seen.got <= TRAINS // 3


def test_a_row_alone_waits_no_longer_than_that(one_stream):
    run, seen = one_stream
    run.publish(0, PIECE)
    hosted = run.hosted(next(iter(run.fed.nodes["m"].brain.fragments)))
    run.until(lambda: hosted.rows_in == PIECE, "it is fed")
    fed_us = run.fed.world.now_us
    run.until(lambda: bool(seen.fed_us), "the secondary is sent it")
    assert 0 < run.fed.world.now_us - fed_us <= GATHER_US + 1_000


def test_many_rows_go_before_the_time_is_up(one_stream):
    run, seen = one_stream
    hosted = run.hosted(next(iter(run.fed.nodes["m"].brain.fragments)))
    for first in range(0, 2 * GATHER_ITEMS * PIECE, PIECE):
        part = run.tables["rows"].slice(first, PIECE)
        run.publishers["rows"].publish("q.rows", part, run.schemas["rows"])
    run.until(lambda: hosted.rows_in > 0, "they are fed")
    fed_us = run.fed.world.now_us
    run.until(lambda: bool(seen.fed_us), "the secondary is sent them")
    assert run.fed.world.now_us - fed_us < GATHER_US // 2


def test_what_was_gathered_goes_with_a_row_and_takes_no_turn_of_its_own(one_stream, monkeypatch):
    run, seen = one_stream
    fed_us, honest = [], StandbyChangeFeed.fed

    def fed(self, work):
        fed_us.append(run.fed.world.now_us)
        honest(self, work)

    monkeypatch.setattr(StandbyChangeFeed, "fed", fed)
    run.publish()
    run.check()
    assert len(seen.fed_us) >= TRAINS
    alone = {at_us for at_us in seen.fed_us if at_us not in fed_us}
    assert len(alone) <= 2, "the last ones, which nothing comes after"


def test_what_waits_behind_a_checkpoint_hurries_and_what_comes_later_does_not():
    def work():
        input = type("Input", (), {"named": False, "by": "e", "fed_seq": 0, "fed_us": 0})()
        fields = {"element": None, "number": -1, "input": input, "next_seq": 1, "boundary_us": 0}
        return type("Work", (), {**fields, "note": b"", "payload": None})()

    tap = StandbyChangeFeed()
    tap.joined(work().input, 3)
    assert (tap.hurries, len(tap.queue)) == (False, 0), "it isn't begun: the checkpoint will hold it"
    tap.begins(7, 0)
    tap.fed(work())
    assert not tap.hurries
    tap.begins(8, 0)
    tap.fed(work())
    assert tap.hurries
    tap.queue.popleft()
    assert tap.hurries, "the mark waits"
    tap.queue.clear()
    tap.fed(work())
    assert not tap.hurries
    tap.queue.clear()
    tap.joined(work().input, 3)
    assert tap.hurries


def test_an_order_of_arrival_goes_at_once_and_is_acknowledged_at_once():
    run, fragment = run_of(uniting(), UNITED, {"m": ["s1"]}, tables=two_sources())
    run.until_guarded(fragment)
    run.publish(0, ROWS // 2)
    half = 2 * len(run.tables["left"]) // 2
    run.until(lambda: run.hosted(fragment).rows_in == half, "half of the rows are fed")
    run.fed.run(for_us=1_000_000)
    seen = Seen(run)
    run.publish(ROWS // 2, ROWS // 2 + PIECE, source="left")
    run.until(lambda: run.hosted(fragment).rows_in > half, "one more is fed")
    fed_us = run.fed.world.now_us
    run.until(lambda: bool(seen.fed_us and seen.got), "its secondary has it, and says so")
    assert run.fed.world.now_us - fed_us < GATHER_US // 2


def test_the_owner_encodes_nothing_that_came_for_its_secondary(one_stream, monkeypatch):
    run, seen = one_stream
    hosted = run.hosted(next(iter(run.fed.nodes["m"].brain.fragments)))
    came, honest, encoded = [each.codec for each in hosted.inputs.values()], TrainCodec.encode, []

    def encode(self, train, **rest):
        if any(self is codec for codec in came):
            encoded.append(train)
        return honest(self, train, **rest)

    monkeypatch.setattr(TrainCodec, "encode", encode)
    run.publish()
    run.check()
    assert len(seen.fed_us) >= TRAINS
    assert not encoded
