"""The tentative lane over any network: what is delivered is in order, of the fork, below no promise; the
state ends where the sender's is, and nothing of it touches the rows that count."""

from __future__ import annotations

import json
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from medusa.elements import START_US
from medusa.errors import RemoteProtocolError
from medusa.wire.link.automaton import LinkEvent, LinkSettings, ReceiverState, SenderState
from medusa.wire.link.tentative_receiver import StateChanged, TentativePromise, TentativeRowsCame
from medusa.wire.messages.tentative import StreamState, TentativeBoundary, TentativeRows
from tests.wire.pair import Pair

NARROW = LinkSettings(
    window_bytes=4000,
    frame_bytes_max=1000,
    retained_bytes_max=100_000,
    keep_bytes=3000,
    tentative_bytes_max=800,
)
STEPS = (
    *(6 * ("rows",) + 3 * ("promise",) + 2 * ("stable rows",) + ("stable promise",) + 2 * ("state",)),
    *(8 * ("frames",) + 4 * ("take",) + 2 * ("wait",) + ("cut", "restart")),
)


class Lane:
    """A sender with forks, a receiver, and a network that does what the dice say.

    Attributes:
        put_out: fork, as the sender counts over all its lives -> times of its rows.
        ends: of each time the stream became stable, how many rows that count there were, and what it had
            promised.
    """

    def __init__(self, dice):
        self.dice = dice
        self.pair = Pair(NARROW, tentative=True)
        self.pair.take_guesses = False
        self.pair.up()
        self.put_out = {}
        self.fork = self.forks = 0
        self.state = "stable"
        self.promised_us = 0
        self.ends = [(0, None)]
        self.stable_rows = 0
        self.stable_us = None
        self.steps = {
            "rows": self.rows,
            "promise": self.promise,
            "stable rows": self.stable_rows_come,
            "stable promise": self.stable_promise_comes,
            "state": self.state_changes,
            "frames": self.frames,
            "wait": self.wait,
            "cut": self.cut,
            "restart": self.restart,
            "take": self.take,
        }

    def step(self, name):
        self.steps[name]()
        self.pair.collect()

    def rows(self):
        if not self.fork:
            return
        times = [self.promised_us + self.dice.randrange(4) for _ in range(self.dice.randrange(1, 5))]
        first = len(self.put_out[self.forks])
        self.put_out[self.forks] += times
        rows = [[self.forks, first + place, time_us] for place, time_us in enumerate(times)]
        self.pair.sender.tentative.train(self.pair.now_us, json.dumps(rows).encode(), len(rows))

    def promise(self):
        if self.fork:
            self.promised_us += self.dice.randrange(3)
            self.pair.sender.tentative.boundary(self.pair.now_us, self.promised_us)

    def stable_rows_come(self):
        text = "s" * self.dice.randrange(1, 6)
        self.stable_rows += len(text)
        self.pair.train(text)

    def stable_promise_comes(self):
        self.stable_us = (self.stable_us or 0) + self.dice.randrange(1, 3)
        self.pair.sender.boundary(self.pair.now_us, self.stable_us)

    def state_changes(self):
        self.state = self.dice.choice(["stable", "up_failure", "stabilization", "up_failure"])
        if self.state == "stable":
            self.fork = 0
            self.ends.append((self.stable_rows, self.stable_us))
        elif self.dice.random() < 0.5 or not self.fork:
            self.fork += 1 + self.dice.randrange(2)
            self.forks += 1
            self.promised_us = 0
            self.put_out[self.forks] = []
        self.pair.sender.tentative.state(self.pair.now_us, self.state, self.fork)

    def frames(self):
        """What is under way comes: some of it late, twice or not at all."""
        frames = self.pair.to_receiver
        kept = [each for each in frames if self.dice.random() < 0.85]
        kept += [each for each in kept if self.dice.random() < 0.2]
        if self.dice.random() < 0.3:
            self.dice.shuffle(kept)
        stay = self.dice.randrange(len(kept) + 1) if self.dice.random() < 0.4 else len(kept)
        coming, self.pair.to_receiver = kept[:stay], kept[stay:]
        for message, payload in coming:
            self.pair.bring(message, payload)
        back, self.pair.to_sender = self.pair.to_sender, []
        for message, _ in back:
            if self.dice.random() < 0.85:
                self.pair.sender.receive(self.pair.now_us, "target", message)

    def wait(self):
        self.pair.now_us += self.dice.choice([1000, 20_000, 100_000, 300_000])
        self.pair.sender.tick(self.pair.now_us)
        self.pair.receiver.tick(self.pair.now_us)

    def cut(self):
        for event in (LinkEvent.PEER_DOWN, LinkEvent.PEER_UP):
            if self.dice.random() < 0.7:
                self.pair.receiver.peer_event(self.pair.now_us, event)
            if self.dice.random() < 0.7:
                self.pair.sender.peer(self.pair.now_us, "target", event)
        self.pair.take_tentative()

    def restart(self):
        """The receiver takes the sender for another one: what comes then is of another fork."""
        self.pair.receiver.peer_event(self.pair.now_us, LinkEvent.PEER_RESTARTED)
        self.pair.take_tentative()

    def take(self):
        lane = self.pair.receiver.tentative
        if lane.held_bytes:
            lane.taken(self.pair.now_us, self.dice.randrange(lane.held_bytes) + 1)

    def heal(self):
        """From now on nothing is lost: all come to rest, whether or not the link is made anew."""
        self.pair.to_receiver.clear()
        self.pair.to_sender.clear()
        view = self.pair.sender.receivers["target"]
        there = self.pair.receiver.state is not ReceiverState.IDLE and view.state is SenderState.FLOWING
        self.linked_anew = not there or self.dice.random() < 0.5
        for event in (LinkEvent.PEER_DOWN, LinkEvent.PEER_UP) if self.linked_anew else ():
            self.pair.sender.peer(self.pair.now_us, "target", event)
            self.pair.receiver.peer_event(self.pair.now_us, event)
        self.pair.take_tentative()
        lane = self.pair.receiver.tentative
        lane.taken(self.pair.now_us, lane.held_bytes)
        self.pair.take_guesses = True
        self.pair.settle()
        self.pair.wait(3_000_000)


def run(steps, dice):
    lane = Lane(dice)
    for step in steps:
        lane.step(step)
        assert lane.pair.receiver.tentative.held_bytes <= NARROW.tentative_bytes_max
        sent = lane.pair.sender.receivers["target"].lane
        assert sent is None or sent.under_way_bytes <= NARROW.tentative_bytes_max
    lane.heal()
    return lane


ANY = {
    "steps": st.lists(st.sampled_from(STEPS), min_size=10, max_size=80),
    "dice": st.integers(0, 1 << 32).map(Random),
}


@given(**ANY)
@settings(max_examples=100, deadline=None)
def test_rows_come_in_order_once_and_below_no_promise_of_their_fork(steps, dice):
    lane = run(steps, dice)
    came, promised, numbers = {}, {}, {}
    fork = 0
    for guess in lane.pair.guesses:
        match guess:
            case StateChanged():
                fork = guess.fork
            case TentativePromise():
                assert guess.fork == fork, "it is of the fork that was said"
                assert guess.time_us > promised.get(fork, -1)
                promised[fork] = guess.time_us
            case TentativeRowsCame():
                assert guess.fork == fork > 0
                rows = json.loads(bytes(guess.payload))
                assert numbers.setdefault(fork, rows[0][0]) == rows[0][0], (
                    "rows of two forks under one number"
                )
                assert rows[0][1] > came.get(fork, -1)
                came[fork] = rows[-1][1]
                assert [lane.put_out[of][seq] for of, seq, _ in rows] == [time_us for _, _, time_us in rows]
                assert min(time_us for _, _, time_us in rows) >= promised.get(fork, -1)


@given(**ANY)
@settings(max_examples=100, deadline=None)
def test_in_the_end_the_state_is_the_senders_and_what_it_promised_has_come(steps, dice):
    lane = run(steps, dice)
    receiver = lane.pair.receiver.tentative
    assert receiver.state == lane.state
    assert bool(receiver.fork) == bool(lane.fork)
    assert receiver.held_bytes == 0
    if lane.fork:
        before = len(lane.pair.guesses)
        lane.pair.sender.tentative.train(lane.pair.now_us, b"[[0, 0, 0]]", 1)
        lane.pair.settle()
        assert isinstance(lane.pair.guesses[-1], TentativeRowsCame), "the lane goes on"
        assert len(lane.pair.guesses) == before + 1
        if lane.promised_us and lane.linked_anew:
            assert receiver.boundary_us == lane.promised_us


@given(**ANY)
@settings(max_examples=100, deadline=None)
def test_a_stream_is_stable_no_sooner_than_its_corrections_have_come(steps, dice):
    lane = Lane(dice)
    bring, epoch, said = lane.pair.bring, 0, []

    def brought(message, payload):
        """Of what was said of this attachment, some 'stable' holds from the next row on."""
        nonlocal epoch, said
        if isinstance(message, StreamState) and message.state == "stable":
            stands = message.seq, message.boundary_us
            said = [*(said if message.epoch == epoch else ()), stands]
            epoch = message.epoch
            assert stands in lane.ends, "where the stream became stable"
        count = len(lane.pair.guesses)
        bring(message, payload)
        for guess in lane.pair.guesses[count:]:
            if isinstance(guess, StateChanged) and guess.state == "stable":
                has = lane.pair.receiver.next_seq, lane.pair.receiver.boundary_us
                assert any(has[0] >= seq and has[1] >= (at_us or START_US) for seq, at_us in said)

    lane.pair.bring = brought
    for step in steps:
        lane.step(step)
    lane.heal()
    assert len(lane.pair.text) == lane.stable_rows, "the rows that count came, once"


@given(**ANY)
@settings(max_examples=100, deadline=None)
def test_what_was_put_out_came_or_was_missed(steps, dice):
    """Of a fork that the receiver knew from its first row to its last."""
    steps = [step for step in steps if step not in ("restart", "state")]
    lane = Lane(dice)
    lane.state, lane.fork, lane.forks, lane.put_out[1] = "up_failure", 1, 1, []
    lane.pair.sender.tentative.state(0, "up_failure", 1)
    lane.pair.settle()
    for step in steps:
        lane.step(step)
    lane.heal()
    lane.promised_us += 1
    lane.pair.sender.tentative.boundary(lane.pair.now_us, lane.promised_us)
    lane.pair.settle()
    came = sum(g.message.rows for g in lane.pair.guesses if isinstance(g, TentativeRowsCame))
    assert came + lane.pair.receiver.tentative.missed_rows == len(lane.put_out[1])


def made(epoch, *, kind, frame, fork, seq, state, time_us, rows, empty):
    about = {"stream": "s", "epoch": epoch, "frame": frame, "seq": seq}
    if kind == "state":
        return StreamState(state=state, fork=fork, **about)
    if kind == "rows":
        return TentativeRows(fork=fork, rows=rows, **about)
    return TentativeBoundary(fork=fork, time_us=time_us, **about)


@given(
    frames=st.lists(
        st.builds(
            dict,
            kind=st.sampled_from(["state", "rows", "promise"]),
            frame=st.integers(0, 12),
            fork=st.integers(0, 3),
            seq=st.integers(0, 12),
            state=st.sampled_from(["stable", "up_failure", "stabilization"]),
            time_us=st.integers(-5, 5),
            rows=st.integers(1, 4),
            empty=st.booleans(),
        ),
        max_size=20,
    )
)
@settings(max_examples=100, deadline=None)
def test_whatever_a_sender_says_is_taken_or_refused_with_nothing_changed(frames):
    pair = Pair(NARROW, tentative=True).up()
    lane = pair.receiver.tentative
    for each in frames:
        message = made(pair.receiver._epoch, **each)
        payload = None if each["empty"] or each["kind"] != "rows" else b"x" * 100
        before = (lane.state, lane.fork, lane.boundary_us, lane.held_bytes, lane.missed_rows)
        try:
            pair.receiver.receive(0, message, payload)
        except RemoteProtocolError as error:
            code, taken = error.code, False
        else:
            taken = True
            pair.take_tentative()
        if not taken:
            assert code in ("E_FORK", "E_SEQ", "E_FRAME", "E_BOUNDARY")
            after = (lane.state, lane.fork, lane.boundary_us, lane.held_bytes, lane.missed_rows)
            assert (before, lane.take()) == (after, [])
    assert lane.missed_rows >= 0
    assert pair.receiver.next_seq == 0
