"""Passive standby: a secondary holds its owner's newest checkpoint, and begins from it if that is lost."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

import medusa as md
from medusa.nodes.fragment.checkpoint_record import LOG
from medusa.nodes.recovery.held_checkpoint import CheckpointReceiver
from medusa.query.boxes import Sink
from medusa.query.recovery import PASSIVE
from medusa.wire.codec import decode_frame
from medusa.wire.messages.move import Fed, Piece, Seed, Whole
from tests.nodes.taken_over import PIECE, ROWS, SCHEMA, Run
from tests.nodes.test_taken_over import UNITED, WHOLE, check_union, counting, shown, two_sources, uniting
from tests.nodes.test_taken_over_kinds import KINDS
from tests.sim.planting import Mistake, edit, planted

HALF = ROWS // 2 // PIECE * PIECE


def passively(q: Any) -> Any:
    """The same query, of which each output wants to be recovered so."""
    wish = {"recovery": "precise", "method": PASSIVE}
    boxes = [msgspec.structs.replace(box, **wish) if isinstance(box, Sink) else box for box in q.graph.boxes]
    return md.Query.from_graph(msgspec.structs.replace(q.graph, boxes=tuple(boxes)))


def run_of(q: Any, at: Any, *others: str, guarded: str = "m", **more: Any) -> tuple[Run, str]:
    """Deployed at ``e`` and read; these stand by for the fragment of ``guarded``, and s3 for all others."""
    standby = {node: others if node == guarded else ("s3",) for node in at}
    run = Run(passively(q), at, standby=standby, deploys="e", witnesses=("w", "x"), **more)
    run.deploy()
    [fragment] = run.fed.nodes[guarded].brain.fragments
    run.read()
    run.until_guarded(fragment, len(others))
    return run, fragment


def held(run: Run, node: str, fragment: str) -> CheckpointReceiver:
    found = [each for name, _, each in run.recovery(node).followings.followed() if name == fragment]
    assert isinstance(found[0], CheckpointReceiver)
    return found[0]


@pytest.mark.parametrize("kind", ["sliding", "join", "process", "table"])
def test_what_it_holds_is_in_the_checkpoint(kind: str) -> None:
    q = md.Query("q")
    kept = KINDS[kind](q.source("rows", SCHEMA, time="ts").filter("v >= 0", name="first"))
    q.sink("out", kept.filter("true", name="last"))
    outside = ("rows", "first", "last", "out")
    middle = [box.id for box in q.graph.boxes if box.id not in outside]
    run, fragment = run_of(q, {"e": ["rows", "first"], "m": middle, "c": ["last", "out"]}, "s1", "s2")
    run.publish(0, HALF)
    run.fed.run(for_us=120_000)
    run.publish(HALF, ROWS)
    run.fed.run(for_us=30_000)
    assert run.recovery("s1").followings.shadow(fragment) is None, "nothing runs there"
    run.lose("m")
    run.until_owned(fragment, "s1")
    run.check()


@pytest.mark.parametrize("after_us", [0, 9_000, 40_000])
def test_an_order_of_arrival_that_was_shown_is_in_the_checkpoint(after_us: int) -> None:
    run, fragment = run_of(uniting(), UNITED, "s1", "s2", tables=two_sources(), seed=after_us)
    run.publish()
    run.until(lambda: shown(run) > 0, "rows are shown")
    run.fed.run(for_us=after_us)
    run.lose("m")
    run.until_owned(fragment, "s1")
    check_union(run)


def test_owners_are_lost_one_after_the_other_amid_what_clients_publish() -> None:
    run, fragment = run_of(counting(), WHOLE, "s1", "s2")
    third = ROWS // 3 // PIECE * PIECE
    for place, (owner, successor) in enumerate([("m", "s1"), ("s1", "s2")]):
        run.publish(place * third, (place + 1) * third)
        run.fed.run(for_us=30_000)
        run.lose(owner)
        run.until_owned(fragment, successor)
        if (
            place == 0
        ):  # Until the decision that it has begun, in which s2 doesn't count: it hadn't followed yet.
            run.until(lambda: not run.replicas(fragment).predecessors, f"{successor} has begun")
            run.until_guarded(fragment, 1)
    run.publish(2 * third, ROWS)
    run.check()


def test_output_behind_a_decision_waits_until_the_checkpoint_with_it_is_held() -> None:
    run, fragment = run_of(uniting(), UNITED, "s1", tables=two_sources())
    run.publish()
    hosted = run.hosted(fragment)
    assert hosted is not None
    most = 0
    while "q.all" not in run.reader.ended:
        run.fed.run(for_us=5_000)
        record = held(run, "s1", fragment).record
        assert record is not None
        assert hosted._shown <= record.decided
        most = max(most, hosted._shown)
    assert most > 0
    check_union(run)


class Traffic:
    """What goes from an owner to s1."""

    def __init__(self, run: Run) -> None:
        self.fed = self.piece_bytes = 0
        self.kept: list[int] = []
        """Of each checkpoint, how many files came before."""
        self._came: set[str] = set()
        run.fed.network.observe(self._sent)

    def _sent(self, tag: str, frames: list) -> None:
        message, payload = decode_frame(frames, peer="m")
        match message:
            case Fed():
                self.fed += 1
            case Piece():
                self.piece_bytes += len(payload)
                self._came.add(message.file)
            case Whole():
                self.kept.append(message.files - len(self._came))
                self._came.clear()


def test_nothing_that_is_fed_goes_and_output_of_earlier_checkpoints_goes_once() -> None:
    run, fragment = run_of(counting(), WHOLE, "s1")
    run.reader.die()  # So what comes out is kept.
    traffic = Traffic(run)
    run.publish()
    run.fed.run(for_us=1_500_000)
    assert traffic.fed == 0
    assert any(traffic.kept)
    files = held(run, "s1", fragment)._held
    assert sum(name.startswith(LOG) for name in files) > 1


def test_a_checkpoint_on_a_base_that_is_not_held_is_said_and_seeded_anew() -> None:
    run, fragment = run_of(counting(), WHOLE, "s1")
    run.reader.die()
    run.publish(0, HALF)
    run.until(lambda: len(held(run, "s1", fragment)._held) > 4, "there is output of earlier checkpoints")
    taking = held(run, "s1", fragment)
    taking.held_token -= 1
    run.publish(HALF, ROWS - PIECE)
    followings = run.recovery("s1").followings
    run.until(
        lambda: any(each is not taking for *_, each in followings.followed()),
        "it comes anew",
        for_us=5_000_000,
    )
    said = [line for line in run.fed.last().splitlines() if "secondary doesn't follow" in line]
    assert any(f"and {taking.held_token} is held" in line for line in said)


class Backup:
    """All that an owner sent a secondary until this held its first checkpoint, as it came."""

    def __init__(self, run: Run, owner: str, to: str) -> None:
        self.seed: tuple[Seed, bytes] | None = None
        self.frames: list[tuple[Any, Any]] = []
        self._followings = run.recovery(to).followings
        asked, frame = self._followings.asked, self._followings.frame

        def ask(now_us: int, peer: str, message: Seed, payload: Any, caller: Any = None) -> None:
            if peer == owner:
                self.seed, self.frames = (message, bytes(payload)), []
            asked(now_us, peer, message, payload, caller)

        def take(now_us: int, peer: str, message: Any, payload: Any) -> None:
            if peer == owner and not any(isinstance(each, Whole) for each, _ in self.frames):
                self.frames.append((message, None if payload is None else bytes(payload)))
            frame(now_us, peer, message, payload)

        self._patch = pytest.MonkeyPatch()
        self._patch.setattr(self._followings, "asked", ask)
        self._patch.setattr(self._followings, "frame", take)

    def comes_again(self, run: Run, owner: str) -> None:
        """By an owner that hasn't heard that it is one no more."""
        self._patch.undo()
        assert self.seed is not None
        message, spec = self.seed
        attempt = message.attempt + (1 << 20)
        self._followings.asked(
            run.fed.world.now_us, owner, msgspec.structs.replace(message, attempt=attempt), spec
        )
        run.fed.run(for_us=200_000)
        coming = self._followings._coming.get(message.fragment)
        for each, payload in self.frames:
            if coming is not None:
                same = msgspec.structs.replace(each, attempt=attempt, ticket=coming.ticket)
                self._followings.frame(run.fed.world.now_us, owner, same, payload)


def test_a_backup_of_an_older_epoch_does_not_win() -> None:
    """Who stands by holds what the present owner sent, whatever one before still sends."""
    run = Run(
        passively(uniting()),
        UNITED,
        standby={"m": ["s1", "s2"], "e": ["s3"], "c": ["s3"]},
        deploys="e",
        witnesses=("w", "x"),
        tables=two_sources(),
    )
    backup = Backup(run, "m", "s2")
    run.deploy()
    [fragment] = run.fed.nodes["m"].brain.fragments
    run.read()
    run.until_guarded(fragment, 2)
    run.publish(0, HALF)
    run.fed.run(for_us=30_000)
    run.lose("m")
    run.until_owned(fragment, "s1")
    run.until_guarded(fragment, 1)
    run.publish(HALF, ROWS - PIECE)
    count = shown(run)
    run.until(lambda: shown(run) > count, "the new owner shows rows")
    backup.comes_again(run, "m")
    assert held(run, "s2", fragment).owner == "s1"
    run.lose("s1")
    run.until_owned(fragment, "s2")
    run.publish(ROWS - PIECE, ROWS)
    check_union(run)


def test_what_a_secondary_holds_counts_as_memory_and_is_given_back() -> None:
    run, fragment = run_of(counting(), WHOLE, "s1")
    run.publish(0, HALF)
    run.fed.run(for_us=500_000)
    taking = held(run, "s1", fragment)
    assert taking.held_bytes == sum(len(data) for data in taking._held.values()) > 0
    run.lose("m")
    run.until_owned(fragment, "s1")
    assert taking.held_bytes == 0


MISTAKES = {
    "output leaves before the checkpoint with its decisions is held": (
        edit(
            "nodes.recovery.checkpoint_shipping:CheckpointFeed.arrived",
            "return self._sent.decided",
            "return self._sent.decided + 1_000",
        ),
        test_output_behind_a_decision_waits_until_the_checkpoint_with_it_is_held,
    ),
    "a checkpoint on a wrong base is taken": (
        edit(
            "nodes.recovery.held_checkpoint:CheckpointReceiver._check_base",
            "(message.base != self.held_token or not self.held_token)",
            "not self.held_token",
        ),
        test_a_checkpoint_on_a_base_that_is_not_held_is_said_and_seeded_anew,
    ),
    "a backup of an older epoch wins": (
        edit(
            "nodes.recovery.followings:Followings._check_free",
            "if (replicas.owner, replicas.epoch) != (peer, message.epoch):",
            "if False:",
        ),
        test_a_backup_of_an_older_epoch_does_not_win,
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_noticed(name: str) -> None:
    edits, notices = MISTAKES[name]
    with planted(Mistake(area="passive standby", about=name, edits=edits)), pytest.raises(AssertionError):
        notices()
