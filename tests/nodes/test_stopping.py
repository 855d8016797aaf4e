"""A fragment ends under a stream that doesn't: its last checkpoint holds what it was fed, and it rests."""

from __future__ import annotations

import pytest

import medusa as md
from tests.nodes.test_decided_output import SCHEMA, Life, union


def one() -> md.Query:
    q = md.Query("q")
    q.sink("out", q.source("a", SCHEMA, time="ts").filter("v > 0", name="f"))
    return q


@pytest.mark.parametrize("query", [one, union])
def test_what_comes_after_the_end_began_is_left_to_who_sent_it(query):
    life = Life(query())
    life.offers("p", "a")
    while life.logs:
        life.log()
    life.publishes("p", "a", 1)
    life.hosted.stop(0)
    life.settle()
    for value in (2, 3):
        # More comes before and after the last checkpoint is on disk, as from a sender that goes on.
        life.publishes("p", "a", value)
        while life.logs:
            life.log()
        while life.checkpoints:
            life.disk()
        assert life.hosted.at_rest
    assert life.read == [0]
    assert life.hosted.inputs["a", "p"].fed_seq == 1


def test_a_last_checkpoint_that_fails_is_tried_again():
    life = Life(one())
    life.offers("p", "a")
    life.publishes("p", "a", 1)
    life.hosted.tick(0)
    life.hosted.stop(0)
    life.settle()
    life.hosted.persisted(0, life.checkpoints.popleft().token, False, "disk full")
    life.settle()
    assert not life.hosted.at_rest
    life.hosted.tick(1_000_000)
    life.settle()
    life.disk()
    assert life.hosted.at_rest


def test_no_publisher_is_let_in_at_the_end():
    life = Life(union())
    life.hosted.stop(0)
    life.offers("p", "a")
    assert ("a", "p") not in life.hosted.inputs
    while life.checkpoints:
        life.disk()
    assert life.hosted.at_rest
