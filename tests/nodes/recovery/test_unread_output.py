"""Recovered by amnesia while nobody reads: results that were kept for who comes later die with their node.

They have numbers, by which they are told to who reads later; rows of the input that had gone into them count
nowhere else. What is missing is what was held, and what those results had counted.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from medusa.nodes.diskless.sealed_cuts import CutSealer, SealedCut
from medusa.sim.actors.client import Client
from medusa.wire.messages.links import NOW, OLDEST
from tests.nodes.recovery.amnesia_run import AmnesiaRun, by_amnesia
from tests.nodes.recovery.test_amnesia import CUT
from tests.nodes.taken_over import EVERY_US, PIECE, ROWS, Run
from tests.wire.pair import SMALL, Pair

HALF = ROWS // 2 // PIECE * PIECE
CUT_OFF_US = 11_000_000
OUT = "q.out"


@pytest.fixture(autouse=True)
def _by_amnesia(monkeypatch: pytest.MonkeyPatch) -> None:
    by_amnesia(monkeypatch)


class UnreadRun(AmnesiaRun):
    """Clients publish into windows, and nobody reads until ``begin_to_read``."""

    def __init__(self) -> None:
        super().__init__("clients at both ends")

    def read(self) -> None:
        pass

    def begin_to_read(self) -> None:
        Run.read(self)

    def publish_all_of(self, begin: int, end: int) -> int:
        """And wait until all is said about it; how many results were put out by then."""
        self.publish(begin, end)
        self.fed.run(for_us=((end - begin) // PIECE + 2) * EVERY_US + 300_000)
        hosted = self.hosted(self.fragment)
        assert hosted is not None
        return hosted.outputs["out"].rows

    def succeeded(self) -> None:
        """The owner is lost, and its successor has heard all."""
        self.lose("m")
        self.until_owned(self.fragment, "s1")
        self.until(self._heard_all, "its publisher has come after it")

    def _heard_all(self) -> bool:
        hosted = self.hosted(self.fragment)
        return hosted is not None and bool(hosted.inputs) and self.begun()

    def told_lost(self) -> list[tuple[int, int]]:
        """Of the output, by who took over: from which number to before which."""
        said = [each.fields for each in self.fed.nodes["s1"].reports if each.what == "rows lost"]
        return [(each["first"], each["first"] + each["rows"]) for each in said if each.get("stream") == OUT]

    def check_unread(self, gaps: Sequence[tuple[int, int]]) -> int:
        """The reader was told of these, and they are what is missing beside what the fragment held; how many
        rows had gone into them."""
        self.until_ended()
        assert self.reader.gaps.get(OUT, []) == list(gaps)
        assert self.reader.lost.get(OUT, 0) == sum(end - first for first, end in gaps)
        status = self.status()
        assert not status["lost_unknown"]
        results = self.want["out"].to_pylist()
        counted = sum(results[number]["n"] for first, end in gaps for number in range(first, end))
        assert self.missing() == status["lost_rows"] + counted
        return counted


def test_results_that_nobody_had_read_are_told_by_number() -> None:
    run = UnreadRun()
    put_out = run.publish_all_of(0, HALF)
    assert put_out > 10
    run.succeeded()
    assert run.told_lost() == [(0, put_out)]
    run.begin_to_read()
    run.publish(HALF, ROWS)
    assert run.check_unread([(0, put_out)]) > 10


def test_that_they_are_told_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted mistake, which it was once: the stream begins behind them, as if there had been none."""
    monkeypatch.setattr(SealedCut, "unread_from", lambda self, sink: self.output_at(sink))
    with pytest.raises(AssertionError):
        test_results_that_nobody_had_read_are_told_by_number()


def test_who_comes_before_the_node_is_lost_has_them() -> None:
    run = UnreadRun()
    put_out = run.publish_all_of(0, HALF)
    run.begin_to_read()
    run.until(lambda: sum(map(len, run.reader.rows.get(OUT, []))) == put_out, "it reads what was kept")
    run.fed.run(for_us=300_000)
    run.succeeded()
    assert run.told_lost() == []
    run.publish(HALF, ROWS)
    assert run.check_unread([]) == 0


def test_what_another_one_had_read_is_not_lost() -> None:
    run = UnreadRun()
    other = run.fed.client("other", "m")
    other.read(OUT)
    read = run.publish_all_of(0, HALF // 2 // PIECE * PIECE)
    assert sum(map(len, other.rows[OUT])) == read > 0
    now_us = run.fed.world.now_us
    other.do(lambda mind: mind.unsubscribe(now_us, OUT))
    put_out = run.publish_all_of(HALF // 2 // PIECE * PIECE, HALF)
    assert put_out > read
    run.succeeded()
    assert run.told_lost() == [(read, put_out)]
    run.begin_to_read()
    run.publish(HALF, ROWS)
    run.until_ended()
    assert run.reader.gaps[OUT] == [(read, put_out)]


def test_one_that_was_cut_off_for_long_hears_what_it_missed() -> None:
    run = UnreadRun()
    run.begin_to_read()
    had = run.publish_all_of(0, HALF // 2 // PIECE * PIECE)
    assert had > 0
    for way in (("reader", "m"), ("m", "reader")):
        run.fed.network.cut(*way)
    run.fed.run(for_us=CUT_OFF_US)
    put_out = run.publish_all_of(HALF // 2 // PIECE * PIECE, HALF)
    assert put_out > had
    run.fed.run(for_us=CUT_OFF_US)
    run.succeeded()
    run.publish(HALF, ROWS)
    assert run.check_unread([(had, put_out)]) > 0


def test_who_wants_new_rows_alone_and_who_comes_much_later_hear_of_none() -> None:
    run = UnreadRun()
    put_out = run.publish_all_of(0, HALF)
    run.succeeded()
    late: Client = run.fed.client("new", "s1")
    late.do(lambda mind: mind.subscribe(run.fed.world.now_us, OUT, NOW))
    run.fed.run(for_us=300_000)
    run.publish_all_of(HALF, ROWS - 2 * PIECE)
    assert late.first_seq[OUT] == put_out
    assert not late.lost
    assert late.mind.subscriptions[OUT].receiver.durable_seq > put_out
    run.begin_to_read()
    run.publish(ROWS - 2 * PIECE, ROWS)
    run.until_ended()
    assert not run.reader.lost, "rows behind those were let go too, since somebody had them"


def test_a_note_says_what_nobody_had_read_and_is_as_before_where_there_is_none() -> None:
    sealer = CutSealer(b"key")
    unread = msgspec.structs.replace(CUT, unread=(("out", 2),))
    assert sealer.cut(sealer.note(unread), "q/f") == unread
    assert (unread.unread_from("out"), CUT.unread_from("out"), CUT.unread_from("other")) == (2, 5, 0)
    fields = msgspec.structs.astuple(CUT)
    assert sealer.note(CUT).endswith(msgspec.msgpack.encode(fields[:-2]))


def test_who_wants_the_oldest_row_is_told_as_long_as_what_came_next_is_kept() -> None:
    def pair_of() -> Pair:
        pair = Pair(SMALL, plain=True, expect=False, next_seq=OLDEST)
        pair.sender.begin_log(9, 4)
        pair.train("abc")
        return pair

    told = pair_of().up()
    assert (told.receiver.lost_rows, told.receiver.next_seq) == (5, 12)
    behind = pair_of()
    behind.sender.log.trim_to(0)
    behind.train("def")
    behind.up()
    assert (behind.receiver.lost_rows, behind.receiver.next_seq) == (0, 15)
