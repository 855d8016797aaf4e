"""A stream that spills: what receivers don't hold yet leaves memory for the disk, and comes back in order."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medusa.errors import ConfigError
from medusa.nodes.config.settings import parse
from medusa.nodes.fragment.checkpoint_record import LOG
from medusa.nodes.fragment.outputs import OutgoingElement
from medusa.nodes.fragment.spilling import READS_MAX, RETRY_US
from medusa.runtime.engine_host.group_names import group_token, segment_name
from medusa.wire.link.automaton import LinkEvent
from medusa.wire.link.receiver import LostRows
from tests.nodes.spilled import BOUND, NAME, SPILLS, TRAIN, Story, files, stalled


def test_what_is_not_taken_leaves_memory_and_comes_back_in_order():
    story = stalled()
    log = story.log
    assert log.nbytes > 2.5 * BOUND
    assert log.spilled_bytes >= BOUND / 2
    assert log.memory_bytes <= BOUND
    assert len(story.text) < log.next_seq / 10
    story.read_all()
    assert story.text == story.expected()
    story.check()


def test_what_is_durable_there_is_deleted_here():
    story = stalled()
    assert files(story)
    story.read_all()
    story.say_durable()
    story.wait(200_000)
    assert story.log.nbytes == story.log.spilled_bytes == 0
    story.checkpoint()
    story.work()
    assert files(story) == []


def test_a_disk_that_fails_slows_the_source_and_nothing_is_lost():
    story = stalled(20)
    story.disk.full = True
    while not story.output.full(0):
        story.train(TRAIN)
        story.work()
        story.check()
    at = story.log.next_seq
    assert [each.what for each in story.reports] == ["output not spilled"]
    assert "disk failed" in story.output.spilling.error
    story.wait(2 * RETRY_US)
    story.work()
    assert story.output.full(0)
    story.disk.mend()
    story.wait(2 * RETRY_US)
    story.work()
    story.check()
    assert not story.output.full(0)
    assert story.output.spilling.error == ""
    assert [each.what for each in story.reports] == ["output not spilled", "output spilled again"]
    story.read_all()
    assert story.text == story.expected(at)


def test_another_life_reads_from_the_same_segments():
    story = stalled()
    story.checkpoint()
    story.work()
    kept, spilled, away = story.log.nbytes, files(story), story.log.spilled_bytes
    story.restart()
    assert story.log.nbytes == kept
    assert story.log.spilled_bytes >= away  # nothing of a segment is read before it is wanted
    assert story.log.memory_bytes <= BOUND
    story.settle()
    story.checkpoint()
    story.work()
    assert files(story) == spilled
    story.read_all()
    assert story.text == story.expected()


def test_segments_of_which_no_checkpoint_knows_are_deleted():
    story = stalled()
    assert files(story)
    story.restart()
    assert story.log.next_seq == 0
    story.checkpoint()
    story.work()
    assert files(story) == []


def test_a_segment_stays_while_one_of_two_checkpoints_refers_to_it():
    story = stalled()
    story.checkpoint()
    story.work()
    spilled = files(story)
    story.read_all()
    story.say_durable()
    story.wait(200_000)
    story.checkpoint()
    story.work()
    assert set(spilled) <= set(files(story))
    story.train(1)
    story.checkpoint()
    story.work()
    assert files(story) == []


def test_a_checkpoint_neither_needs_nor_writes_what_is_spilled():
    story = stalled()
    for _ in range(6):  # more than after which kept output is written together again
        story.checkpoint()
        story.work()
        story.train(10)
    logs = [n for n in story.disk.names() if group_token(NAME, n) is not None]
    assert sum(len(story.disk.read(name)[LOG]) for name in logs) <= 3 * BOUND
    assert len(story.output.tokens()) <= 3


def test_a_damaged_segment_is_counted_row_by_row():
    story = stalled()
    away = {}
    for index, (token, _) in story.output._stored.items():
        away.setdefault(token, []).append(story.log[index])
    victim, gone = list(away.items())[2]
    assert all(entry.away for entry in gone)
    name = segment_name(NAME, victim)
    data = bytearray(story.disk._groups[name][LOG])
    data[3] ^= 1
    story.disk._groups[name][LOG] = bytes(data)
    story.read_all()
    story.wait(READS_MAX * RETRY_US * 2)
    story.read_all()
    start, end = gone[0].seq, gone[-1].end
    assert [each for each in story.got if isinstance(each, LostRows)] == [
        LostRows(from_seq=start, to_seq=end)
    ]
    (view,) = story.output.sender.receivers.values()
    assert story.receiver.lost_rows == view.lost_rows == end - start
    whole = story.expected()
    assert story.text == whole[:start] + whole[end:]
    told = [each for each in story.reports if each.what == "output lost on disk"]
    assert [each.fields["rows"] for each in told] == [end - start]
    assert "damaged" in told[0].fields["why"]


def test_a_read_that_fails_once_is_tried_again():
    story = stalled()
    honest, failed = story.disk.read, []

    def fails_once(name):
        if not failed:
            failed.append(name)
            return {}
        return honest(name)

    story.disk.read = fails_once
    story.read_all()
    assert failed
    assert story.text == story.expected()


def test_a_stream_that_no_longer_spills_still_reads_what_it_did():
    story = stalled()
    story.checkpoint()
    story.work()
    story.settings = replace(SPILLS, at_limit="slow")
    story.restart()
    story.read_all()
    assert story.text == story.expected()


def test_a_node_without_a_disk_cannot_spill():
    text = 'name = "a"\nlisten = "tcp://127.0.0.1:*"\nstore = "memory"\n[streams."q.*"]\nat_limit = "spill"\n'
    with pytest.raises(ConfigError, match=r"line 5: streams.q.\*.at_limit: .* no disk to spill to .*slow"):
        parse(text)
    assert parse(text.replace('"memory"', '"disk"\ndata = "d"')).streams[0].at_limit == "spill"


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("train"), st.integers(1, 20)),
        st.tuples(st.just("train"), st.integers(1, 20)),
        st.tuples(st.sampled_from(["boundary", "work", "consume"]), st.integers(1, 8)),
        st.tuples(
            st.sampled_from(
                ["settle", "checkpoint", "durable", "wait", "fail", "away", "again", "restart", "crash"]
            ),
            st.just(0),
        ),
    ),
    max_size=60,
)


@settings(max_examples=60, deadline=None)
@given(STEPS, st.integers(0, 2**32))
def test_every_row_comes_once_and_in_order(steps, seed):
    story = Story()
    for number in range(30):  # Nobody takes them, so from now on there is something to spill.
        story.train((seed + 83 * number) % TRAIN + 1)
    for what, amount in steps:
        match what:
            case "train":
                for number in range(amount):
                    if not story.output.full(0):
                        story.train((seed + 97 * number) % TRAIN + 1)
                        story.check()
            case "boundary":
                story.boundary_us += amount
                story.output._send(story.now_us, [OutgoingElement(payload=None, time_us=story.boundary_us)])
            case "work":
                story.work(amount)
            case "consume":
                story.consume(amount)
            case "settle":
                story.settle()
            case "checkpoint":
                story.checkpoint()
            case "durable":
                # As a node does: what it acknowledged it has for ever.
                story.say_durable()
            case "wait":
                story.wait(RETRY_US)
            case "fail":
                story.disk.fail_next = 1
            case "away":
                for event in (LinkEvent.PEER_DOWN, LinkEvent.PEER_UP):
                    story.output.sender.peer(story.now_us, "target", event)
            case "again":
                story.receiver.peer_event(story.now_us, LinkEvent.PEER_RESTARTED)
            case "restart":
                story.restart()
            case "crash":
                story.crash_receiver()
        story.check()
    story.disk.mend()
    want = max(story.log.next_seq, story.receiver.next_seq) + 1
    story.wait(RETRY_US)
    for _ in range(200):
        while story.log.next_seq < want and not story.output.full(0):
            story.train(min(want - story.log.next_seq, TRAIN))
        if story.log.next_seq == want:
            break
        story.read_all()
        story.say_durable()
        story.wait(200_000)
    story.read_all()
    story.check()
    assert not [each for each in story.got if isinstance(each, LostRows)]
    assert story.text == story.expected(want)
