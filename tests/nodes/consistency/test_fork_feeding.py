"""What a fork is fed, element by element; the engine answers what the test says."""

from __future__ import annotations

from itertools import count
from typing import Any

import msgspec
import pyarrow as pa

import medusa as md
from medusa.elements import END_US, START_US, Boundary, Element, Silent, Train
from medusa.nodes.clock.wall_clock import WallClock
from medusa.nodes.consistency.catching_up import CatchingUp
from medusa.nodes.consistency.delay_bound import LATE_SHARE
from medusa.nodes.fragment.durability import policy_of
from medusa.nodes.fragment.host import RUNNING_MAX, FragmentHost
from medusa.nodes.placement.placement import cut
from medusa.wire.codec import TrainCodec
from medusa.wire.link.automaton import LinkEvent, LinkSettings
from medusa.wire.messages.links import OLDEST, Attach, Attached, Data
from medusa.wire.messages.links import Boundary as Promise
from medusa.wire.messages.tentative import StreamState, TentativeBoundary, TentativeRows
from medusa.wire.outbox import CloseFragment, Fork, Log, Outbox, Persist, ReportLine, RunFragment, Send

SCHEMA = {"ts": "timestamp[us, UTC]", "v": "int64"}
X_US = 2_000_000
FORKS_AFTER_US = 1_800_000


def query(**more: Any) -> md.Query:
    q = md.Query("q")
    a, b = (q.source(name, SCHEMA, time="ts", **more) for name in "ab")
    q.sink("out", md.sunion(a, b, bucket="1ms", name="both"))
    return q


def row(at_us: int) -> pa.RecordBatch:
    times = pa.array([at_us], pa.timestamp("us", tz="UTC"))
    return pa.record_batch({"ts": times, "v": pa.array([at_us], pa.int64())})


class Forking:
    """A fragment whose engine does nothing by itself.

    Attributes:
        fed: fragment or fork -> what it was given.
        forks, closed: names, in order.
    """

    def __init__(self, q: md.Query, *, judged: bool = False, host: type[FragmentHost] = FragmentHost) -> None:
        if judged:  # Its sources are of fragments at other nodes.
            at = {"e": ["a"], "f": ["b"], "m": ["both", "out"]}
            [spec] = [each for each in cut(q.graph, at).fragments if each.node == "m"]
        else:
            spec = cut(q.graph, {"m": list(q.sources)}).fragments[0]
        self.spec = msgspec.structs.replace(spec, delay_us=X_US)
        self.outbox = Outbox()
        self.now_us = 0
        tokens = count(1)
        self.broken: dict[str, int] = {}
        self.hosted = host(
            self.spec,
            incarnation=1,
            outbox=self.outbox,
            link=LinkSettings(),
            durability=policy_of(disk=True, guarded=False),
            checkpoint_every_us=1_000_000_000,
            next_token=lambda: next(tokens),
            wall=WallClock(),
            broken_since_us=self.broken.get,
        )
        self.fed: dict[str, list[Element | Silent]] = {}
        self.sources: dict[str, list[str]] = {}
        self.answered: list[Any] = []
        self.log_waits = self.holds_checkpoints = False
        self.held: list[int] = []
        self.forks: list[str] = []
        self.closed: list[str] = []
        self.reports: list[str] = []
        self.sent: list[Any] = []
        self._epochs: dict[str, int] = {}
        self._frames: dict[str, int] = {}
        self._lanes: dict[str, int] = {}
        attach = Attach(
            stream="q.out", epoch=1, next_seq=OLDEST, durable=0, granted=1 << 20, plain=True, tentative=True
        )
        self.hosted.from_reader(0, "out", "reader", attach, owner="", others=0)
        self.settle()

    @property
    def bound(self) -> Any:
        assert self.hosted.bound is not None
        return self.hosted.bound

    def settle(self) -> None:
        while effects := self.outbox.take():
            for effect in effects:
                self._perform(effect)

    def _perform(self, effect: Any) -> None:
        match effect:
            case Log() if not self.log_waits:
                self.hosted.logged(self.now_us, True)
            case Persist() if self.holds_checkpoints:
                self.held.append(effect.token)
            case Persist():
                self.hosted.persisted(self.now_us, effect.token, True)
            case RunFragment():
                self.fed.setdefault(effect.fragment, []).append(effect.element)
                self.sources.setdefault(effect.fragment, []).append(effect.stream)
            case Fork():
                self.forks.append(effect.fork)
            case CloseFragment():
                self.closed.append(effect.fragment)
            case ReportLine():
                self.reports.append(effect.what)
            case Send(message=Attach() as asked):
                self._epochs[effect.peer] = asked.epoch
            case Send(peer="reader"):
                self.sent.append(effect.message)

    def pass_to(self, now_us: int) -> None:
        self.now_us = now_us
        self.hosted.tick(now_us)
        self.settle()

    def offers(self, peer: str, source: str) -> None:
        columns = next(box.schema for box in self.spec.graph.boxes if box.id == source)
        self.hosted.open_publisher(self.now_us, peer, source, columns)
        self.settle()
        self.attached(peer)

    def comes(self, peer: str, *, end_seq: int | None = None) -> None:
        self.hosted.peer_event(self.now_us, peer, LinkEvent.PEER_UP)
        self.settle()
        self.attached(peer, end_seq=end_seq)

    def goes(self, peer: str, *, heard_us: int) -> None:
        self.broken[peer] = heard_us
        self.hosted.peer_event(self.now_us, peer, LinkEvent.PEER_DOWN)
        self.settle()

    def back(self, peer: str, *, end_seq: int | None = None) -> None:
        del self.broken[peer]
        self.hosted.peer_event(self.now_us, peer, LinkEvent.PEER_UP)
        self.settle()
        self.attached(peer, end_seq=end_seq)

    def input(self, peer: str) -> Any:
        return next(each for each in self.hosted.inputs.values() if each.by == peer)

    def attached(self, peer: str, *, end_seq: int | None = None) -> None:
        input = self.input(peer)
        receiver = input.receiver
        first = Attached(
            stream=input.stream,
            epoch=self._epochs[peer],
            next_seq=receiver.next_seq,
            boundary_us=START_US,
            schema=receiver.schema,
            timed=input.judged,
            tentative=(receiver.next_seq if end_seq is None else end_seq, START_US),
        )
        self._frames[peer], self._lanes[peer] = 1, 0
        self.hosted.receive(self.now_us, input, first, None)
        self.state(peer, "stable")

    def state(self, peer: str, state: Any, fork: int = 0, *, lost: bool = False) -> None:
        input = self.input(peer)
        self._lane(peer, input, StreamState, state=state, fork=fork, seq=0, lost=lost)

    def _lane(self, peer: str, input: Any, kind: Any, payload: Any = None, **fields: Any) -> None:
        frame = self._lanes[peer]
        self._lanes[peer] += 1
        message = kind(stream=input.stream, epoch=self._epochs[peer], frame=frame, **fields)
        self.hosted.receive(self.now_us, input, message, payload)
        self.settle()

    def _encoded(self, input: Any, at_us: int) -> bytes:
        times = pa.array([at_us], pa.timestamp("us", tz="UTC")) if input.judged else None
        codec = TrainCodec(input.receiver.schema, timed=input.judged)
        [(payload, _, _)] = codec.encode(Train(batch=row(at_us), times=times))
        return bytes(payload)

    def brings(self, peer: str, at_us: int) -> None:
        input = self.input(peer)
        data = Data(
            stream=input.stream,
            epoch=self._epochs[peer],
            frame=self._frames[peer],
            seq=input.receiver.next_seq,
            rows=1,
        )
        self._frames[peer] += 1
        self.hosted.receive(self.now_us, input, data, self._encoded(input, at_us))
        self.settle()

    def promises(self, peer: str, at_us: int) -> None:
        input = self.input(peer)
        message = Promise(
            stream=input.stream,
            epoch=self._epochs[peer],
            frame=self._frames[peer],
            seq=input.receiver.next_seq,
            time_us=at_us,
        )
        self._frames[peer] += 1
        self.hosted.receive(self.now_us, input, message, None)
        self.settle()

    def guesses(self, peer: str, fork: int, seq: int, at_us: int) -> None:
        input = self.input(peer)
        self._lane(peer, input, TentativeRows, self._encoded(input, at_us), fork=fork, seq=seq, rows=1)

    def guesses_boundary(self, peer: str, fork: int, seq: int, at_us: int) -> None:
        self._lane(peer, self.input(peer), TentativeBoundary, fork=fork, seq=seq, time_us=at_us)

    def ran(self, outputs: list[tuple[str, Element]] | None = None) -> None:
        """The fragment has run the oldest."""
        self.hosted.ran(self.now_us, outputs or [])
        self.settle()

    def fork_ran(self, outputs: list[tuple[str, Element]] | None = None, *, name: str = "") -> None:
        self.bound.ran(self.now_us, name or self.forks[-1], outputs or [])
        self.settle()

    def there(self) -> None:
        self.bound.forked(self.now_us, self.forks[-1], "")
        self.settle()

    def shown(self, name: str = "") -> list[Any]:
        """What the fork was given: times of rows, boundaries, questions."""
        found: list[Any] = []
        for each in self.fed.get(name or self.forks[-1], []):
            match each:
                case Train():
                    found.append([value.as_py() for value in each.batch.column("v")])
                case Boundary():
                    found.append(each.time_us)
                case Silent():
                    found.append(each.sources)
        return found

    def states(self) -> list[tuple[str, int]]:
        said = [(each.state, each.fork) for each in self.sent if isinstance(each, StreamState)]
        return [each for each, before in zip(said, [None, *said], strict=False) if each != before]


def missing_b(**more: Any) -> Forking:
    """Rows of a come, and b was heard last at 1 s."""
    life = Forking(query(**more))
    life.offers("pa", "a")
    life.offers("pb", "b")
    life.brings("pa", 100)
    life.brings("pb", 110)
    life.now_us = 1_700_000
    life.goes("pb", heard_us=1_000_000)
    life.now_us = 1_750_000
    life.brings("pa", 200)
    return life


def test_it_forks_when_x_less_the_margin_has_gone_by_since_the_input_was_heard() -> None:
    life = missing_b()
    assert life.hosted.wake_at_us() is not None
    life.pass_to(1_000_000 + FORKS_AFTER_US - 1)
    assert life.forks == []
    assert life.states() == [("stable", 0)]
    assert life.hosted.wake_at_us() <= 1_000_000 + FORKS_AFTER_US  # type: ignore[operator]
    life.pass_to(1_000_000 + FORKS_AFTER_US)
    assert life.forks == ["q/a#1"]
    assert life.states() == [("stable", 0), ("up_failure", 1)]


def test_where_nothing_else_comes_there_is_nothing_to_answer() -> None:
    life = Forking(query())
    life.offers("pa", "a")
    life.offers("pb", "b")
    life.brings("pa", 100)
    life.brings("pb", 110)
    life.now_us = 1_700_000
    life.goes("pb", heard_us=1_000_000)
    life.pass_to(4_000_000)
    assert life.forks == []
    assert life.states()[-1] == ("up_failure", 0)
    life.now_us = 5_000_000
    life.brings("pa", 200)
    assert life.forks == ["q/a#1"]
    assert life.states()[-1] == ("up_failure", 1)


def test_where_nobody_reads_what_a_fork_says_there_is_none() -> None:
    life = missing_b()
    life.hosted.peer_event(life.now_us, "reader", LinkEvent.PEER_RESTARTED)
    life.pass_to(4_000_000)
    assert life.forks == []
    attach = Attach(
        stream="q.out", epoch=2, next_seq=OLDEST, durable=0, granted=1 << 20, plain=True, tentative=True
    )
    life.hosted.from_reader(life.now_us, "out", "reader", attach, owner="", others=0)
    life.settle()
    assert life.forks == ["q/a#1"]


def test_it_is_asked_for_the_boundary_of_who_is_missing_and_given_it() -> None:
    life = missing_b()
    life.pass_to(2_800_000)
    life.there()
    life.brings("pa", 300)
    assert life.shown() == [("b",), [300]]
    life.fork_ran([("b", Boundary(200))])
    assert life.shown()[2:] == [200, ("b",)]
    assert life.sources["q/a#1"] == ["b", "a", "b", "b"]
    life.fork_ran()
    life.fork_ran()
    life.fork_ran([("b", Boundary(300))])
    assert life.shown()[4:] == [300, ("b",)], "a lift may be followed by another one"
    life.fork_ran()
    life.fork_ran([])
    assert len(life.shown()) == 6, "nothing was fed since"


def test_a_fork_that_is_behind_is_lifted_too() -> None:
    """Else it would answer nothing for as long as more comes than it can be given."""
    life = missing_b()
    life.pass_to(2_800_000)
    life.there()
    for at_us in range(300, 500):
        life.brings("pa", at_us)
        while life.hosted.under_way:
            life.ran()
    answered = 0
    while answered < 100:
        life.fork_ran()
        answered += 1
    assert life.shown()[:100].count(("b",)) == 2, "at first, and in between"


def test_what_waited_for_the_engine_is_given_to_both() -> None:
    """The state is copied as it is after all that the fragment was given before."""
    life = missing_b()
    life.pass_to(2_800_000)
    before = len(life.fed["q/a"])
    life.brings("pa", 300)
    assert len(life.fed["q/a"]) == before + 1
    assert [each for each in life.shown() if isinstance(each, list)] == [[300]]


def test_what_the_engine_had_no_room_for_when_the_fork_began_is_given_to_it() -> None:
    life = missing_b()
    for at_us in range(300, 300 + RUNNING_MAX):
        life.brings("pa", at_us)
    given = [
        [value.as_py() for value in each.batch["v"]] for each in life.fed["q/a"] if isinstance(each, Train)
    ]
    waits = [[at_us] for at_us in range(300, 300 + RUNNING_MAX) if [at_us] not in given]
    assert waits, "the engine has as much under way as it may"
    life.pass_to(2_800_000)
    life.there()
    assert [each for each in life.shown() if isinstance(each, list)] == waits


def test_of_several_publishers_the_missing_ones_dont_hold_the_others_up() -> None:
    life = Forking(query())
    for peer, source in (("pa", "a"), ("pb", "b"), ("pc", "b")):
        life.offers(peer, source)
    for peer in ("pa", "pb", "pc"):
        life.promises(peer, 100)
    life.now_us = 1_700_000
    life.goes("pc", heard_us=1_000_000)
    life.brings("pa", 200)
    life.promises("pb", 500)
    assert 500 not in [each.time_us for each in life.fed["q/a"] if isinstance(each, Boundary)]
    life.pass_to(2_800_000)
    life.promises("pb", 600)
    assert life.sources["q/a#1"].count("b") == 2
    assert life.shown() == [500, 600] or life.shown()[:2] == [500, 600]
    life.back("pc")
    life.promises("pc", 300)
    life.promises("pb", 700)
    assert 700 not in life.shown(), "it counts again, and has promised 300"


def test_a_source_doesnt_end_while_one_of_its_publishers_is_missing() -> None:
    life = Forking(query())
    for peer, source in (("pa", "a"), ("pb", "b"), ("pc", "b")):
        life.offers(peer, source)
    life.now_us = 1_700_000
    life.goes("pc", heard_us=1_000_000)
    life.brings("pa", 200)
    life.pass_to(2_800_000)
    life.promises("pb", END_US)
    life.brings("pa", 300)
    assert END_US not in life.shown()
    assert life.shown()[-1] == ("b",)


def test_an_idle_source_is_lifted_in_the_fork_too_until_it_brings_rows() -> None:
    q = md.Query("q")
    a, b = (q.source(name, SCHEMA, time="ts") for name in "ab")
    c = q.source("c", SCHEMA, time="ts", idle="1s")
    q.sink("out", md.sunion(a, b, c, bucket="1ms", name="both"))
    life = Forking(q)
    for peer, source in (("pa", "a"), ("pb", "b"), ("pc", "c")):
        life.offers(peer, source)
    life.pass_to(1)
    life.now_us = 1_700_000
    life.goes("pb", heard_us=1_000_000)
    life.brings("pa", 200)
    life.pass_to(2_800_000)
    life.brings("pa", 300)
    asked = [each for each in life.shown() if isinstance(each, tuple)]
    assert asked == [("b", "c")]
    life.brings("pc", 290)
    for _ in range(len(life.shown()) - 1):
        life.fork_ran([("b", Boundary(300)), ("c", Boundary(300))] if life.shown()[0] == ("b", "c") else [])
    assert 300 not in [
        each.time_us
        for each, source in zip(life.fed["q/a#1"], life.sources["q/a#1"], strict=True)
        if isinstance(each, Boundary) and source == "c"
    ]


# --- by the tentative lane ----------------------------------------------------------------------------


def judged() -> Forking:
    life = Forking(query(), judged=True)
    for peer in "ef":
        life.comes(peer)
    life.promises("e", 100)
    life.promises("f", 100)
    return life


def test_a_sender_that_fails_is_followed_at_once_and_its_rows_stand_in() -> None:
    life = judged()
    life.state("f", "up_failure", fork=1)
    assert len(life.forks) == 1
    life.guesses("f", 1, 0, 150)
    life.guesses_boundary("f", 1, 1, 160)
    assert life.shown() == [[150], 160]
    assert life.fed["q/both"] == [Boundary(100), Boundary(100)], "none of it reaches the fragment itself"


def test_rows_below_what_the_fork_was_promised_dont_enter() -> None:
    life = judged()
    life.state("f", "up_failure", fork=1)
    life.guesses_boundary("f", 1, 0, 160)
    life.brings("f", 120)
    life.promises("f", 130)
    life.brings("f", 170)
    assert life.shown() == [160, [170]]
    assert [len(each) for each in life.fed["q/both"] if isinstance(each, Train)] == [1, 1]


def test_a_sender_without_a_fork_is_lifted() -> None:
    life = judged()
    life.now_us = 1_000_000
    life.brings("e", 150)
    life.state("f", "up_failure", fork=0)
    assert len(life.forks) == 1
    assert life.shown() == [(life.input("f").source,)]


def test_another_fork_of_the_sender_is_followed_by_a_new_copy() -> None:
    life = judged()
    life.state("f", "up_failure", fork=1)
    life.there()
    life.guesses("f", 1, 0, 150)
    life.fork_ran()
    life.state("f", "up_failure", fork=2)
    assert (len(life.forks), life.closed) == (2, [])
    life.guesses("f", 2, 0, 140)
    assert life.shown(life.forks[1]) == [[140]]
    life.there()
    life.fork_ran()
    assert life.closed == [life.forks[0]]
    assert life.states()[-1] == ("up_failure", 2)


def test_it_ends_when_the_sender_is_stable_and_all_was_fed() -> None:
    life = judged()
    life.state("f", "up_failure", fork=1)
    life.there()
    life.state("f", "stabilization", fork=1)
    assert life.states()[-1] == ("stabilization", 1)
    life.brings("f", 120)
    life.state("f", "stable")
    assert life.closed == [], "the row isn't run"
    while life.hosted.under_way:
        life.ran()
    assert life.closed == life.forks
    assert life.states()[-1] == ("stable", 0)


def test_what_the_sender_had_meanwhile_has_to_come_first() -> None:
    life = judged()
    life.now_us = 1_700_000
    life.goes("f", heard_us=1_000_000)
    life.brings("e", 150)
    life.pass_to(2_800_000)
    life.there()
    life.back("f", end_seq=2)
    while life.hosted.under_way:
        life.ran()
    assert life.states()[-1] == ("stabilization", 1)
    life.brings("f", 120)
    life.ran()
    assert life.states()[-1] == ("stabilization", 1)
    life.brings("f", 130)
    life.ran()
    assert life.states()[-1] == ("stable", 0)


def test_a_sender_that_says_another_fork_with_each_word_costs_two_copies_a_second() -> None:
    life = judged()
    for fork in range(1, 30):
        life.state("f", "up_failure", fork=fork)
        life.guesses("f", fork, 0, 150 + fork)
        life.there()
        life.fork_ran()
    assert len(life.forks) == 2
    assert life.bound.wake_at_us() == 1_000_000
    life.pass_to(1_000_000)
    assert len(life.forks) == 3, "of the last one"
    life.there()
    life.pass_to(2_100_000)
    assert len(life.forks) == 3


def test_with_two_lanes_rows_of_a_fork_that_is_void_dont_stay() -> None:
    life = judged()
    for peer, at_us in ("e", 155), ("f", 150):
        life.state(peer, "up_failure", fork=1)
        life.guesses(peer, 1, 0, at_us)
    life.there()
    life.fork_ran()
    life.state("f", "up_failure", fork=2)
    assert len(life.forks) == 2
    life.guesses("f", 2, 0, 140)
    assert life.shown() == [[155], [140]]


def stabilizing() -> Forking:
    """f was missing, and is back; of what it had meanwhile nothing has come yet."""
    life = judged()
    life.now_us = 1_700_000
    life.goes("f", heard_us=1_000_000)
    life.brings("e", 150)
    life.pass_to(2_800_000)
    life.there()
    life.fork_ran()
    life.now_us = 3_000_000
    life.back("f", end_seq=20)
    assert life.states()[-1] == ("stabilization", 1)
    return life


def test_an_input_that_goes_again_before_it_has_brought_anything_keeps_the_fork() -> None:
    life = stabilizing()
    life.now_us = 3_500_000
    life.goes("f", heard_us=3_100_000)
    life.pass_to(3_100_000 + FORKS_AFTER_US)
    assert life.states()[-1] == ("up_failure", 1)
    assert len(life.forks) == 1


def test_an_input_that_goes_again_amid_its_corrections_has_the_fork_replaced() -> None:
    """What came late for the first one is in the second."""
    life = stabilizing()
    life.brings("f", 120)
    life.now_us = 3_500_000
    life.goes("f", heard_us=3_100_000)
    life.pass_to(3_100_000 + FORKS_AFTER_US)
    assert life.states()[-1] == ("up_failure", 1), "the second isn't there"
    assert (len(life.forks), life.closed) == (2, [])
    life.there()
    life.fork_ran()
    assert life.states()[-1] == ("up_failure", 2)
    assert life.closed == life.forks[:1]


# --- one that goes on where it stood ------------------------------------------------------------------


class Restored(FragmentHost):
    """It was there before."""

    forgets = True


def test_a_restored_fragment_isnt_stable_before_it_has_what_came_up_meanwhile() -> None:
    """Else its readers would take what they had in its place for wrong, and wait for it without."""
    life = Forking(query(), judged=True, host=Restored)
    assert life.states() == [("stabilization", 0)], "the first that a reader hears"
    life.comes("e")
    life.comes("f", end_seq=2)
    life.pass_to(1_000)
    life.brings("f", 120)
    while life.hosted.under_way:
        life.ran()
    assert life.states() == [("stabilization", 0)]
    life.brings("f", 130)
    assert life.states() == [("stabilization", 0)], "that isn't run"
    while life.hosted.under_way:
        life.ran()
    assert life.states()[1:] == [("stable", 0)]
    assert life.forks == []


def test_what_came_up_meanwhile_holds_nobody_up_for_longer_than_x() -> None:
    life = Forking(query(), judged=True, host=Restored)
    life.comes("e")
    life.comes("f", end_seq=20)
    life.now_us = 1_000
    life.brings("e", 500)
    life.now_us = 2_000
    life.brings("f", 120)
    life.pass_to(FORKS_AFTER_US - 1)
    assert life.forks == []
    assert life.bound.wake_at_us() == FORKS_AFTER_US
    life.pass_to(FORKS_AFTER_US)
    assert len(life.forks) == 1
    assert life.states()[-1] == ("stabilization", 1)
    assert life.shown() == [("b",)]


def test_a_sender_that_corrects_for_longer_than_x_holds_nobody_up() -> None:
    """It was started again, and has much to catch up with."""
    life = judged()
    life.now_us = 1_000_000
    life.state("f", "stabilization")
    life.brings("e", 150)
    life.pass_to(1_000_000 + FORKS_AFTER_US - 1)
    assert life.forks == []
    life.pass_to(1_000_000 + FORKS_AFTER_US)
    assert len(life.forks) == 1
    assert life.shown() == [("b",)]


def test_a_sender_that_corrects_for_a_moment_isnt_lifted_in_a_fork_that_is_there() -> None:
    """What it brings then would be too late for the fork, and show with the corrections of the other."""
    life = judged()
    life.state("f", "up_failure", fork=1)
    life.now_us = 1_000_000
    life.state("e", "stabilization")
    life.guesses_boundary("f", 1, 0, 160)
    assert life.shown() == [160]
    life.pass_to(1_000_000 + FORKS_AFTER_US - 1)
    assert life.shown() == [160]
    life.pass_to(1_000_000 + FORKS_AFTER_US)
    assert life.shown() == [160, ("a",)]


def test_a_sender_that_is_back_and_says_later_that_it_corrects_has_been_missing_since_before() -> None:
    """The waits don't add up: it wasn't heard, and then it corrects, for X less the margin in all."""
    life = judged()
    life.now_us = 1_700_000
    life.goes("f", heard_us=1_000_000)
    life.brings("e", 150)
    life.now_us = 1_750_000
    life.back("f", end_seq=20)
    life.state("f", "stabilization")
    life.pass_to(1_000_000 + FORKS_AFTER_US - 1)
    assert life.forks == []
    life.pass_to(1_000_000 + FORKS_AFTER_US)
    assert len(life.forks) == 1


def test_a_stream_that_begins_anew_is_corrected_once_what_it_has_is_fed() -> None:
    """Its rows count from 0 again: the number that was waited for never comes."""
    life = judged()
    life.state("f", "up_failure", fork=1)
    life.there()
    for at_us in range(110, 120):
        life.brings("f", at_us)
    life.state("f", "stable")
    assert life.states()[-1] == ("stabilization", 1)
    while life.hosted.under_way:
        life.ran()
    assert life.states()[-1] == ("stable", 0)
    catching = CatchingUp([life.input("f")])
    input = life.input("f")
    input.receiver.detach(life.now_us)
    input.begin_anew(0)
    assert catching.is_over(life.hosted)


# --- forks that fail ------------------------------------------------------------------------------------


def test_a_fork_that_cant_be_made_is_said_once_and_tried_again_after_a_second() -> None:
    life = missing_b()
    life.pass_to(2_800_000)
    for attempt in (1, 2, 3):
        assert life.forks == [f"q/a#{n}" for n in range(1, attempt + 1)]
        life.bound.forked(life.now_us, life.forks[-1], "no room")
        life.settle()
        assert life.states()[-1] == ("up_failure", 0)
        life.pass_to(life.now_us + 999_999)
        assert len(life.forks) == attempt
        life.pass_to(life.now_us + 1)
    assert [each for each in life.reports if "no fork" in each] == [life.reports[-1]]
    assert life.bound.status(life.now_us, "out").why == "no room"
    life.there()
    assert life.bound.status(life.now_us, "out").why == ""
    assert life.closed == [], "there is none to be closed"


def test_who_waits_for_another_try_wakes_once() -> None:
    """A time that has passed would have the node look for ever."""
    life = missing_b()
    life.pass_to(2_800_000)
    life.bound.forked(life.now_us, life.forks[-1], "no room")
    life.hosted.peer_event(life.now_us, "reader", LinkEvent.PEER_RESTARTED)
    assert life.bound.wake_at_us() == 3_800_000
    life.pass_to(3_800_000)
    assert life.bound.wake_at_us() is None


def test_a_fork_that_fails_is_closed_and_made_anew() -> None:
    life = missing_b()
    life.pass_to(2_800_000)
    life.there()
    life.bound.failed(life.now_us, "q/a#1", "broken")
    life.settle()
    assert life.closed == ["q/a#1"]
    assert not life.hosted.failed
    life.pass_to(3_800_000)
    assert life.forks == ["q/a#1", "q/a#2"]


def test_a_fork_goes_when_the_fragment_rests_and_comes_again_when_it_goes_on() -> None:
    life = missing_b()
    life.pass_to(2_800_000)
    life.hosted.freeze()
    life.settle()
    assert life.closed == ["q/a#1"]
    life.hosted.thaw(life.now_us)
    life.settle()
    assert life.forks == ["q/a#1", "q/a#2"]


def test_a_fork_for_which_new_rows_wait_is_served_before_the_fragment() -> None:
    """Else corrections would take what new rows need: X is promised for these."""
    life = judged()
    life.now_us = 1_700_000
    life.goes("f", heard_us=1_000_000)
    life.brings("e", 150)
    life.pass_to(2_800_000)
    life.there()
    life.back("f", end_seq=1000)
    for place in range(3 * RUNNING_MAX):
        life.brings("e", 200 + place)
    assert len(life.hosted._running) == RUNNING_MAX, "nothing has waited yet"
    life.pass_to(2_800_000 + X_US // LATE_SHARE)
    while len(life.hosted._running) > 1:
        life.ran()
    assert life.hosted.waiting(), "the fragment is given one at a time"
    life.ran()
    assert len(life.hosted._running) == 1, "it gets on nevertheless"
    [fork] = life.bound._forks
    while fork._running:
        life.fork_ran()
    life.ran()
    assert len(life.hosted._running) == RUNNING_MAX, "the fork has all that came"


def test_a_fork_that_is_too_far_behind_is_replaced_by_a_new_copy(monkeypatch: Any) -> None:
    from medusa.nodes.consistency import fork

    monkeypatch.setattr(fork, "WAITS_BYTES_MAX", 40 * fork.ELEMENT_BYTES)
    life = missing_b()
    life.pass_to(2_800_000)
    for at_us in range(300, 300 + 80):
        life.brings("pa", at_us)
        if life.hosted.under_way:
            life.ran()
    assert len(life.forks) == 2
    life.fork_ran()
    assert life.closed == ["q/a#1"]


def test_copies_for_which_too_much_waits_are_made_less_and_less_often(monkeypatch: Any) -> None:
    """Each takes longer than what comes leaves it: else the engine would copy for as long as b is missing."""
    from medusa.nodes.consistency import fork

    monkeypatch.setattr(fork, "WAITS_BYTES_MAX", 40 * fork.ELEMENT_BYTES)
    life = missing_b()
    life.pass_to(2_800_000)
    at_us = much_comes(life, 300, range(3, 11))
    assert (len(life.forks), life.closed) == (4, ["q/a#2", "q/a#3"]), "at 2.8, 3, 5 and 9 s"
    life.there()
    life.back("pb")
    life.promises("pb", at_us)
    for name in life.forks:
        for _ in life.fed.get(name, []):
            life.fork_ran(name=name)
    while life.hosted.under_way:
        life.ran()
    life.pass_to(11_000_000)
    assert life.bound.status(life.now_us, "out").state == "stable"
    life.goes("pb", heard_us=11_000_000)
    attach = Attach(
        stream="q.out", epoch=2, next_seq=OLDEST, durable=0, granted=1 << 20, plain=True, tentative=True
    )
    life.hosted.from_reader(life.now_us, "out", "reader", attach, owner="", others=0)
    much_comes(life, at_us, range(13, 16))
    assert len(life.forks) == 6, "the next failure begins anew"


def much_comes(life: Forking, at_us: int, seconds: range) -> int:
    """In each of these more than may wait; the time of the last row."""
    for second in seconds:
        for _ in range(45):
            at_us += 1
            life.brings("pa", at_us)
            while life.hosted.under_way:
                life.ran()
        life.pass_to(second * 1_000_000)
    return at_us


def replaced() -> Forking:
    """Of a fork that answers there is to be a successor."""
    life = stabilizing()
    life.brings("f", 120)
    life.now_us = 3_500_000
    life.goes("f", heard_us=3_100_000)
    life.pass_to(3_100_000 + FORKS_AFTER_US)
    assert (len(life.forks), life.closed) == (2, [])
    return life


def test_a_successor_that_cant_be_made_leaves_the_fork_heard_and_is_tried_again() -> None:
    life = replaced()
    life.bound.forked(life.now_us, life.forks[1], "no room")
    life.settle()
    assert life.states()[-1] == ("up_failure", 1), "its rows still come"
    assert life.bound.status(life.now_us, "out").why == ""
    life.pass_to(life.now_us + 1_000_000)
    assert len(life.forks) == 3
    life.bound.forked(life.now_us, life.forks[2], "no room")
    life.settle()
    life.pass_to(life.now_us + 1_000_000)
    assert [each for each in life.reports if "fork" in each] == [
        "no newer fork: what is tentative lacks more"
    ]
    life.there()
    life.fork_ran()
    assert life.states()[-1] == ("up_failure", 2), "the second of which readers hear"
    assert life.closed == life.forks[:1]
    life.pass_to(life.now_us + 2_000_000)
    assert len(life.forks) == 4


def test_a_fork_that_dies_when_its_successor_is_there_is_followed_by_that() -> None:
    life = replaced()
    life.there()
    life.bound.failed(life.now_us, life.forks[0], "the budget is used up")
    life.settle()
    assert life.states()[-1] == ("up_failure", 2)
    life.fork_ran()
    assert life.states()[-1] == ("up_failure", 2)
    assert life.bound.status(life.now_us, "out").why == ""


def test_a_successor_by_another_fork_of_the_sender_is_tried_again_too() -> None:
    life = judged()
    life.state("f", "up_failure", fork=1)
    life.there()
    life.guesses("f", 1, 0, 150)
    life.fork_ran()
    life.state("f", "up_failure", fork=2)
    life.guesses("f", 2, 0, 150)
    life.bound.forked(life.now_us, life.forks[1], "no room")
    life.settle()
    life.pass_to(life.now_us + 1_000_000)
    assert len(life.forks) == 3


def test_a_row_that_came_just_before_who_it_waits_for_went_shows_too() -> None:
    """Who goes was heard after it brought something last: rows of others that came between wait for it."""
    life = Forking(query())
    life.offers("pa", "a")
    life.offers("pb", "b")
    life.promises("pb", 100)
    life.now_us = 950_000
    life.brings("pa", 105)
    life.now_us = 1_700_000
    life.goes("pb", heard_us=1_000_000)
    life.pass_to(1_000_000 + FORKS_AFTER_US)
    assert life.forks == ["q/a#1"]
    assert life.shown() == [("b",)]


def test_a_row_waits_for_one_that_never_brought_anything() -> None:
    life = Forking(query())
    life.offers("pa", "a")
    life.offers("pb", "b")
    life.brings("pa", 105)
    life.now_us = 1_700_000
    life.goes("pb", heard_us=1_000_000)
    life.pass_to(1_000_000 + FORKS_AFTER_US)
    assert life.forks == ["q/a#1"]


def test_rows_of_one_that_has_ended_wait_for_who_is_missing() -> None:
    life = Forking(query())
    life.offers("pa", "a")
    life.offers("pb", "b")
    life.promises("pb", 100)
    life.now_us = 950_000
    life.brings("pa", 105)
    life.promises("pa", END_US)
    life.now_us = 1_700_000
    life.goes("pb", heard_us=1_000_000)
    life.pass_to(1_000_000 + FORKS_AFTER_US)
    assert life.forks == ["q/a#1"]
    assert life.shown() == [("b",)]


# --- fragments that rest, and that begin again ------------------------------------------------------------


def test_a_rest_amid_a_failure_corrects_nothing() -> None:
    """A move that is given up: who was missing before is missing after it, and was all the time."""
    life = missing_b()
    life.pass_to(2_800_000)
    life.there()
    life.fork_ran()
    life.broken.clear()  # The node has forgotten the session of a client that went.
    life.now_us = 3_000_000
    life.hosted.freeze()
    life.settle()
    life.pass_to(3_500_000)
    life.hosted.thaw(life.now_us)
    life.settle()
    life.pass_to(3_600_000)
    assert {state for state, _ in life.states()[1:]} == {"up_failure"}
    assert len(life.forks) == 2


def test_a_node_that_starts_counts_silence_from_then() -> None:
    """Before it doesn't know the time."""
    life = Forking(query(), judged=True, host=Restored)
    assert life.now_us == 0
    life.hosted.peer_event(0, "m", LinkEvent.PEER_UP)  # Its fragments are linked with each other.
    life.now_us = 5_000_000
    life.hosted.begin(life.now_us)
    life.pass_to(5_000_000)
    assert life.states() == [("stabilization", 0)]
    life.pass_to(5_000_000 + FORKS_AFTER_US - 1)
    assert life.states() == [("stabilization", 0)]
    life.pass_to(5_000_000 + FORKS_AFTER_US)
    assert life.states()[-1] == ("up_failure", 0)
