"""Mistakes that strangers planted, and that no seed noticed once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec
import numpy as np
import pytest

from medusa.engine.repartition.tables import StateCut
from medusa.nodes import streams
from medusa.nodes.fragment.input_log import InputLog
from medusa.nodes.fragment.publishers import Publishers
from medusa.nodes.migration.rerouting import Rerouting
from medusa.wire.link.automaton import LinkEvent
from medusa.wire.link.receiver import Receiver
from medusa.wire.link.session import PeerSession
from medusa.wire.messages.links import OpenPublisher


def epochs_begin_at_0(monkeypatch):
    """Each life counts its attachments from 0."""
    honest = Receiver.__init__

    def anew(self, *args, incarnation, **more):
        honest(self, *args, incarnation=0, **more)

    monkeypatch.setattr(Receiver, "__init__", anew)


def hello_of_an_earlier_life(monkeypatch):
    """It counts, also by a connection of its own."""
    monkeypatch.setattr(PeerSession, "is_earlier", lambda self, hello: False)


def told_before_it_is_durable(monkeypatch):
    """Who opens a name is answered with the next checkpoint, whether or not that holds all that came."""
    honest = Publishers._done

    def hasty(self, now_us, each):
        if isinstance(each.message, OpenPublisher) and not each.input.settled:
            if each.input.silent_since_us is None:
                each.input.receiver.peer_event(now_us, LinkEvent.PEER_UP)
            return True
        return honest(self, now_us, each)

    monkeypatch.setattr(Publishers, "_done", hasty)


def not_taken_away(monkeypatch):
    """Who had a name before isn't told that another program has it."""
    monkeypatch.setattr(Publishers, "_oust", lambda self, input, code, text: None)


def older_epoch_followed(monkeypatch):
    """A stream is followed to where it was in an older epoch."""
    honest = Rerouting._moved

    def follows(self, now_us, peer, message):
        for hosted, feed in self._readers_of(message.stream, peer):
            if feed.epoch >= message.epoch:
                older = msgspec.structs.replace(feed, epoch=message.epoch - 1)
                self._replace(
                    hosted, feeds=tuple(older if each == feed else each for each in hosted.spec.feeds)
                )
        return honest(self, now_us, peer, message)

    monkeypatch.setattr(Rerouting, "_moved", follows)


def older_owner_taken_for_the_target(monkeypatch):
    """Who had a fragment in an older epoch attaches, and counts as the one that is to have it."""
    honest = streams.check_reader

    def lenient(message, peer, spec, sink, *, client, awaited=0):
        honest(message, peer, spec, sink, client=client)

    monkeypatch.setattr(streams, "check_reader", lenient)


def wrong_part_just_above_a_cut(monkeypatch):
    """State whose hash lies in the first 1/64 above a cut goes to the part below."""

    def near(self, keys, input=0):
        cuts = np.array(self.made.routers[input].cuts, np.uint64)
        hashes = self.hashes(keys)
        place = cuts.searchsorted(hashes, side="right").astype(np.int64)
        for part, cut in enumerate(cuts):
            place[(place == part + 1) & (hashes - cut < np.uint64(1 << 58))] = part
        return place

    monkeypatch.setattr(StateCut, "owners", near)


def wrong_part_for_1_in_64(monkeypatch):
    """State of one hash in 64 goes to the part below its own."""
    honest = StateCut.owners

    def some(self, keys, input=0):
        place = honest(self, keys, input)
        return np.where(self.hashes(keys) % np.uint64(64) == 0, np.maximum(place - 1, 0), place)

    monkeypatch.setattr(StateCut, "owners", some)


def last_row_before_a_cut_twice(monkeypatch):
    """After a reconnection the last row that came is asked for, and fed, once more."""
    honest = Receiver._attach

    def greedy(self, now_us):
        if self._was_attached and self.durable_seq < self.next_seq:
            self.next_seq -= 1
        honest(self, now_us)

    monkeypatch.setattr(Receiver, "_attach", greedy)


def failed_log_believed(monkeypatch):
    """A write of the decision log that failed counts as done."""
    honest = InputLog.logged
    monkeypatch.setattr(InputLog, "logged", lambda self, now_us, ok, why="": honest(self, now_us, True))


@dataclass(frozen=True)
class BlindSpot:
    """A mistake, and a seed of a scenario that must notice it, one of the first hundred."""

    scenario: str
    seed: int
    patch: Callable[[pytest.MonkeyPatch], None]


BLIND_SPOTS = {
    "epochs begin at 0 in each life": BlindSpot("nodes", 50, epochs_begin_at_0),
    "a Hello of an earlier life counts": BlindSpot("nodes", 6, hello_of_an_earlier_life),
    "told before it is durable": BlindSpot("comeback", 6, told_before_it_is_durable),
    "a name is not taken away": BlindSpot("comeback", 25, not_taken_away),
    "an older epoch followed": BlindSpot("returns", 7, older_epoch_followed),
    "an older owner taken for the target": BlindSpot("returns", 5, older_owner_taken_for_the_target),
    "the wrong part just above a cut": BlindSpot("splits", 296, wrong_part_just_above_a_cut),
    "the wrong part for 1 in 64": BlindSpot("splits", 296, wrong_part_for_1_in_64),
    "the last row before a cut twice": BlindSpot("nodes", 2, last_row_before_a_cut_twice),
    "a failed log believed": BlindSpot("union", 42, failed_log_believed),
}
"""Name: the mistake."""
