"""What an owner keeps for a secondary: it never waits, its checkpoints go on, and a slow one is given up."""

from __future__ import annotations

from types import SimpleNamespace

import pyarrow as pa
import pytest

from medusa.elements import Boundary, Silent, Train
from medusa.nodes.fragment import change_feed
from medusa.nodes.fragment.change_feed import PASSED, ChangeFeed, CheckpointMark, StandbyChangeFeed
from medusa.nodes.fragment.input_log_records import JOINED, LOST, PROMISE, ROWS
from medusa.nodes.fragment.inputs import Work

FROM = SimpleNamespace(receiver=SimpleNamespace(note=b"n"), fed_seq=7, fed_us=9, named=False, by="p")
ROW = Train(batch=pa.record_batch({"v": pa.array([1, 2], pa.int64())}))


def work(element, number=-1):
    made = Work(FROM, element, next_seq=3, boundary_us=4, cost=0)
    made.number = number
    return made


def begun(token=5, decided=2):
    tap = StandbyChangeFeed()
    tap.begins(token, decided)
    return tap


def test_before_the_checkpoint_nothing_is_kept():
    tap = StandbyChangeFeed()
    tap.fed(work(ROW, 0))
    tap.joined(FROM, 1)
    assert (list(tap.queue), tap.items, tap.nbytes) == ([], 0, 0)


def test_what_is_fed_after_it_is_kept_in_order_with_where_its_input_stands():
    tap = begun()
    elements = [(ROW, 2), (Boundary(50), 3), (None, 4), (None, -1), (Silent(50), -1)]
    for element, number in elements:
        tap.fed(work(element, number))
    tap.joined(FROM, 5)
    kept = [(each.kind, each.number, each.next_seq, each.boundary_us) for each in tap.queue]
    moved = (3, 4)
    assert kept == [
        (ROWS, 2, *moved),
        (PROMISE, 3, *moved),
        (LOST, 4, *moved),
        (PASSED, -1, *moved),
        (JOINED, 5, FROM.fed_seq, FROM.fed_us),
    ]
    assert tap.items == 5


def test_the_first_checkpoint_is_the_one_that_goes_and_each_later_one_is_a_mark_amid_what_is_fed():
    tap = begun(5, 2)
    tap.fed(work(ROW, 2))
    tap.begins(8, 3)
    tap.fed(work(ROW, 3))
    tap.begins(11, 4)
    assert (tap.token, tap.decided) == (5, 2)
    order = [each.token if isinstance(each, CheckpointMark) else "rows" for each in tap.queue]
    assert order == ["rows", 8, "rows", 11]
    assert tap.items == 2, "a mark waits for nobody"


def test_checkpoints_go_on_once_the_one_that_goes_was_read():
    tap = StandbyChangeFeed()
    assert not tap.holds_checkpoints
    tap.begins(5, 0)
    assert tap.holds_checkpoints, "it would be deleted"
    tap.read()
    assert not tap.holds_checkpoints
    tap.begins(6, 0)
    assert not tap.holds_checkpoints


def test_that_of_a_move_holds_them_until_it_is_over():
    tap = ChangeFeed()
    tap.begins(5, 0)
    assert tap.holds_checkpoints
    tap.persisted(5, True, "")
    assert tap.holds_checkpoints


@pytest.mark.parametrize("opened", [False, True])
def test_its_owner_never_waits_for_it(opened):
    tap = begun()
    if opened:
        tap.opened()
    for number in range(100):
        tap.fed(work(ROW, number))
    tap.nbytes = change_feed.BACKLOG_MAX
    assert not tap.full
    assert ChangeFeed.full.fget(tap), "one of a move would wait"


def test_one_that_is_too_far_behind_is_given_up_and_keeps_nothing(monkeypatch):
    monkeypatch.setattr(change_feed, "BEHIND_MAX", 3 * (change_feed.ITEM_BYTES + ROW.batch.nbytes))
    tap = begun()
    tap.fed(work(ROW, 0))
    tap.fed(work(ROW, 1))
    assert not tap.broken
    tap.fed(work(ROW, 2))
    assert "behind" in tap.broken
    assert not tap.queue


def test_what_was_done_is_no_more_behind(monkeypatch):
    cost = change_feed.ITEM_BYTES + ROW.batch.nbytes + len(b"n")
    monkeypatch.setattr(change_feed, "BEHIND_MAX", 3 * cost)
    tap = begun()
    for number in range(20):
        tap.fed(work(ROW, number))
        tap.done(tap.queue.popleft().cost)
    assert not tap.broken
    assert (tap.items, tap.nbytes) == (0, 0)


def test_a_checkpoint_that_could_not_be_written_breaks_it_and_another_one_does_not():
    tap = begun(5)
    tap.persisted(6, False, "no room")
    assert (tap.durable, tap.broken) == (False, "")
    tap.persisted(5, False, "no room")
    assert (tap.durable, tap.broken) == (False, "no room")
    written = begun(5)
    written.persisted(5, True, "")
    assert (written.durable, written.broken) == (True, "")
