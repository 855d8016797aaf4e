"""State that is backed up at an upstream node: held there, and gone on with at another node."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from msgspec import UNSET

import medusa as md
from medusa.nodes.placement.placement import cut
from medusa.nodes.recovery.backup_holders import followers_wanted, relieves
from medusa.nodes.recovery.held_checkpoint import CheckpointReceiver
from medusa.query.boxes import Sink
from medusa.query.recovery import STATE_BACKUP
from medusa.runtime.client.status.lost_state import lost_states
from medusa.runtime.embedded.embedded_run import collect
from medusa.wire.messages.configuration import Replicas
from medusa.wire.status_and_metrics import NodeStatus, plain, status_of
from tests.cli.test_status import printed
from tests.nodes.recovery.test_passive_standby import Backup
from tests.nodes.taken_over import HALF, PIECE, ROWS, Run
from tests.nodes.test_handovers import order
from tests.nodes.test_taken_over import CUT, UNITED, WHOLE, check_union, counting, shown, two_sources, uniting
from tests.sim.planting import Mistake, edit, planted

STANDBY = {"e": ["s3"], "m": ["s1", "s2"], "c": ["s3"]}
"""For m: e, which sends to it, holds its state, and s1 goes on with it."""


def backed_up(q: Any) -> Any:
    """The same query, of which each output wants to be recovered so."""
    wish = {"recovery": "precise", "method": STATE_BACKUP}
    boxes = [msgspec.structs.replace(box, **wish) if isinstance(box, Sink) else box for box in q.graph.boxes]
    return md.Query.from_graph(msgspec.structs.replace(q.graph, boxes=tuple(boxes)))


def run_of(q: Any, at: Any = CUT, standby: Any = STANDBY, **more: Any) -> tuple[Run, str]:
    run = Run(backed_up(q), at, standby=standby, deploys="w", witnesses=("x",), **more)
    run.deploy()
    [fragment] = run.fed.nodes["m"].brain.fragments
    run.read()
    for name in [each.fragment for each in run.newest().fragments]:
        run.until_guarded(name, 1)
    return run, fragment


def holders(run: Run, fragment: str) -> dict[str, CheckpointReceiver]:
    """Node -> what it holds of a fragment, and could begin with."""
    found = {}
    for node in run.living:
        for name, _, taking in node.brain.recovery.followings.followed():
            if name == fragment and isinstance(taking, CheckpointReceiver) and taking.shadow is None:
                found[node.name] = taking
    return found


def until_held(run: Run, fragment: str, by: str) -> None:
    """By this node, and by no other."""
    run.until(
        lambda: run.replicas(fragment).secondaries == (by,) and holders(run, fragment).keys() == {by},
        f"{by} alone holds {fragment}",
    )


def status_of_node(run: Run, name: str) -> NodeStatus:
    node = run.fed.nodes[name]
    return status_of(node.brain.status(node.clock.monotonic_us()))


# --- who holds it ------------------------------------------------------------------------------------------


def wanted(replicas: Replicas, *, down: str = "", full: str = "") -> tuple[str, ...]:
    run = Run(backed_up(counting()), CUT, standby=STANDBY)
    spec = msgspec.structs.replace(
        _spec_of(run), method=STATE_BACKUP, backup_nodes=("u1", "u2"), standby=("u1", "u2", "s")
    )
    return followers_wanted(
        spec, replicas, is_up=lambda node: node not in down.split(), refused=lambda node: node in full.split()
    )


def _spec_of(run: Run) -> Any:
    return cut(run.q.graph, run.at).fragments[1]


def of(owner: str, *secondaries: str) -> Replicas:
    members = ("o", "u1", "u2", "s")
    return Replicas(fragment="q/kind", owner=owner, epoch=1, secondaries=secondaries, members=members)


def test_one_node_at_a_time_is_to_hold_it() -> None:
    assert wanted(of("o")) == ("u1",)
    assert wanted(of("o", "u1")) == ("u1",)
    assert wanted(of("o"), down="u1") == ("u2",)
    assert wanted(of("o"), full="u1 u2") == ("s",), "who would go on with it holds it where nobody else can"
    assert wanted(of("o"), down="u1 u2 s") == ()
    assert wanted(of("o", "u2")) == ("u1", "u2"), "u2 is let go only once u1 counts"
    assert wanted(of("o", "u1", "u2")) == ("u1",)
    assert wanted(of("o", "u1"), down="u1") == ("u2", "u1"), "it may be back at once"


def test_a_node_that_holds_it_hands_it_on() -> None:
    assert wanted(of("u1"), down="o") == ("s",)
    assert wanted(of("u1", "s"), down="o") == ("s",)
    assert wanted(of("u1"), down="o s") == ("u2",)
    spec = msgspec.structs.replace(
        _spec_of(Run(backed_up(counting()), CUT, standby=STANDBY)),
        method=STATE_BACKUP,
        backup_nodes=("u1", "u2"),
    )
    assert relieves(spec, of("u1", "s"), "s")
    assert not relieves(spec, of("u1"), "s"), "it doesn't count yet"
    assert not relieves(spec, of("o", "s"), "s"), "its owner isn't one that only holds it"
    assert not relieves(spec, of("u1", "u2"), "u2")


# --- machines are lost -------------------------------------------------------------------------------------


@pytest.mark.parametrize("after_us", [0, 7_000, 40_000, 150_000])
def test_the_owner_is_lost_for_good_and_another_node_goes_on(after_us: int) -> None:
    run, fragment = run_of(counting(), seed=after_us + 1)
    assert holders(run, fragment).keys() == {"e"}
    run.publish(0, HALF)
    run.fed.run(for_us=after_us)
    run.lose("m")
    run.until_owned(fragment, "s1")
    until_held(run, fragment, "e")
    run.publish(HALF, ROWS)
    run.check()


@pytest.mark.parametrize("after_us", [0, 9_000, 60_000])
def test_an_order_of_arrival_that_was_shown_is_in_the_backup(after_us: int) -> None:
    run, fragment = run_of(uniting(), UNITED, tables=two_sources(), seed=after_us + 1)
    run.publish()
    run.until(lambda: shown(run) > 0, "rows are shown")
    run.fed.run(for_us=after_us)
    run.lose("m")
    run.until_owned(fragment, "s1")
    check_union(run)


def test_owners_are_lost_one_after_the_other() -> None:
    run, fragment = run_of(counting())
    third = ROWS // 3
    run.publish(0, third)
    run.fed.run(for_us=30_000)
    run.lose("m")
    run.until_owned(fragment, "s1")
    until_held(run, fragment, "e")
    run.publish(third, 2 * third)
    run.fed.run(for_us=30_000)
    run.lose("s1")
    run.until_owned(fragment, "s2")
    until_held(run, fragment, "e")
    run.publish(2 * third, ROWS)
    run.check()


def test_rows_that_clients_publish_are_backed_up_at_the_first_that_stands_by() -> None:
    run, fragment = run_of(counting(), WHOLE, {"m": ["s1", "s2"]})
    assert holders(run, fragment).keys() == {"s1"}
    run.publish(0, HALF)
    run.fed.run(for_us=60_000)
    run.lose("m")
    run.until_owned(fragment, "s2")
    until_held(run, fragment, "s1")
    run.publish(HALF, ROWS)
    run.check()


def test_who_holds_it_is_lost_and_another_node_holds_it_until_that_is_back() -> None:
    run, fragment = run_of(counting(), WHOLE, {"m": ["s1", "s2"]})
    run.publish(0, HALF)
    run.fed.run(for_us=30_000)
    run.fed.nodes["s1"].crash()
    until_held(run, fragment, "s2")
    run.fed.nodes["s1"].start()
    until_held(run, fragment, "s1")
    run.lose("m")
    run.until_owned(fragment, "s2")
    run.publish(HALF, ROWS)
    run.check()


def lose_owner_and_backup(run: Run) -> None:
    """Both at once, with their disks."""
    for name in ("m", "e"):
        run.fed.nodes[name].crash()
        run.fed.nodes[name].lose_disk()


def guarantee(run: Run) -> str:
    """Of the output, as its coordinator says."""
    outputs = status_of_node(run, "w").queries["q"].outputs
    assert outputs is not UNSET
    return outputs["q.out"].guarantee


def test_owner_and_backup_are_lost_at_once_and_that_is_told() -> None:
    run, fragment = run_of(counting())
    run.publish(0, HALF)
    run.fed.run(for_us=60_000)
    lose_owner_and_backup(run)
    run.fed.run(for_us=5_000_000)
    assert run.hosted(fragment) is None
    status = run.recovery("w").status(run.fed.world.now_us, "q")
    assert set(status.away) == {"m", "e"}
    assert status.fragments[fragment].owner == "m"
    assert guarantee(run) == "as without standby: waits until the node of q/kind is back"


def test_what_was_lost_with_owner_and_backup_is_counted_and_deployed_again() -> None:
    """The sender's successor keeps what was never acknowledged; the rest is in no state any more. A user sees
    both figures, at the node that knows it and at the coordinator, undeploys and deploys again."""
    run, fragment = run_of(counting())
    third = HALF // 3
    for place in range(3):  # What is acknowledged is in the sender's next checkpoint.
        run.publish(place * third, (place + 1) * third)
        run.fed.run(for_us=1_000_000)
    lose_owner_and_backup(run)
    run.until_owned("q/rows", "s3")
    came_out = run.got("out").num_rows
    run.publish(3 * third, HALF + PIECE)
    run.fed.run(for_us=1_000_000)
    for name in ("m", "e"):
        run.fed.restart(name)
    run.until(lambda: "q/kind" in status_of_node(run, "e").without_state, "it is said to be lost")
    run.fed.run(for_us=1_000_000)
    assert guarantee(run).startswith("waits: the node of q/kind has lost its state")
    statuses = [status_of_node(run, node.name) for node in run.living]
    [(about, lost)] = lost_states(statuses).items()
    assert about == ("local", fragment)
    sender = run.hosted("q/rows")
    assert sender is not None
    log = sender.outputs["first-out"].sender.log
    first = min(entry.seq for entry in log.entries() if entry.time_us is None)
    assert lost.went_in == {"q.first": (log.next_seq, first)}
    assert 0 < first < log.next_seq
    assert lost.came_out == {"q.kind": came_out}
    text = printed([plain(each) for each in statuses])
    told = f"q.first: {log.next_seq:,} rows, and nobody keeps the first {first:,}; "
    told += f"q.kind: {came_out:,} rows had come out"
    assert f"LOST: {fragment} (q.kind), epoch 1: no node has its state any more" in text
    assert told in text
    run.undeploy()
    run.until(lambda: not run.remains(), "nothing is left")
    assert not any(status_of_node(run, node.name).without_state for node in run.living)
    run.deploy()
    again = run.client("again", "w")
    again.read("q.out")
    publisher = run.client("publisher", "w")
    rest = run.tables["rows"].slice(HALF + PIECE)
    publisher.publish("q.rows", rest, run.schemas["rows"])
    publisher.finish("q.rows", run.schemas["rows"])
    run.until(lambda: "q.out" in again.ended, "the rows after it come")
    assert run.got("out", again).to_pylist() == collect(run.q, rows=rest)["out"].to_pylist()


# --- room --------------------------------------------------------------------------------------------------


def test_without_room_for_its_state_a_fragment_goes_on_with_its_own_disk_and_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run, fragment = run_of(counting(), WHOLE, {"m": ["s1", "s2"]})
    for name in ("s1", "s2"):
        followings = run.recovery(name).followings
        limits = replace(followings._settings.limits, backups_bytes=100)
        monkeypatch.setattr(followings, "_settings", replace(followings._settings, limits=limits))
    run.publish(0, HALF)
    run.until(lambda: run.replicas(fragment).secondaries == (), "nobody holds it")
    run.publish(HALF, ROWS)
    run.check()
    said = run.fed.last()
    assert "no node holds the state" in said
    assert "holds at most 100 B for others: raise limits.backups of 's1'" in said
    assert not holders(run, fragment)
    hosted = run.hosted(fragment)
    assert hosted is not None
    guarded = run.recovery("m").guarded(run.fed.world.now_us, hosted.spec)
    assert guarded is not None
    assert guarded[1].alone_us is not None


def test_what_a_node_holds_for_others_is_seen() -> None:
    """Whose, in which epoch, how much of what may be, and how old; not what it only stands by for."""
    run, fragment = run_of(counting())
    run.publish(0, HALF)
    run.fed.run(for_us=60_000)
    taking = holders(run, fragment)["e"]
    nbytes = sum(memoryview(data).nbytes for data in taking._held.values())
    before, clock = taking.held_token, run.fed.nodes["e"].clock
    began_us = clock.monotonic_us()
    run.until(lambda: taking.held_token > before, "the next checkpoint is held")
    backups = status_of_node(run, "e").backups
    assert backups.limit_bytes == 256 << 20
    held = backups.held[fragment]
    assert (held.owner, held.epoch) == ("m", run.replicas(fragment).epoch)
    assert held.bytes == taking.held_bytes >= nbytes > 0
    assert held.age_us is not None
    assert 0 <= held.age_us <= clock.monotonic_us() - began_us
    assert backups.bytes == sum(each.bytes for each in backups.held.values())
    assert fragment not in status_of_node(run, "s1").backups.held
    run.lose("m")
    run.until_owned(fragment, "s1")
    until_held(run, fragment, "e")
    after = status_of_node(run, "e").backups.held[fragment]
    assert (after.owner, after.epoch) == ("s1", run.replicas(fragment).epoch)


def test_a_fragment_is_not_moved_to_a_node_that_holds_it_for_others() -> None:
    run, fragment = run_of(counting())
    client, number = order(run, fragment, "e", by="m")
    reply, _ = run.fed.answer(client, number)
    assert reply.code == "E_MOVE"
    assert "node 'e' holds the state of fragment 'q/kind' for others" in reply.text


def test_it_is_moved_to_another_node_and_held_where_it_was() -> None:
    run, fragment = run_of(counting())
    run.publish(0, HALF)
    client, number = order(run, fragment, "s2", by="m")
    reply, _ = run.fed.answer(client, number)
    assert reply.code == "", reply
    run.until_owned(fragment, "s2")
    until_held(run, fragment, "e")
    run.lose("s2")
    run.until(lambda: run.owner(fragment) in ("m", "s1"), "one of the others has it")
    run.publish(HALF, ROWS)
    run.check()


def test_a_backup_of_an_older_epoch_is_not_taken() -> None:
    run = Run(
        backed_up(uniting()), UNITED, standby=STANDBY, deploys="w", witnesses=("x",), tables=two_sources()
    )
    backup = Backup(run, "m", "e")
    run.deploy()
    [fragment] = run.fed.nodes["m"].brain.fragments
    run.read()
    run.until_guarded(fragment, 1)
    run.publish(0, HALF)
    run.fed.run(for_us=30_000)
    run.lose("m")
    run.until_owned(fragment, "s1")
    until_held(run, fragment, "e")
    run.publish(HALF, ROWS - PIECE)
    run.fed.run(for_us=200_000)
    backup.comes_again(run, "m")
    assert holders(run, fragment)["e"].owner == "s1"
    run.lose("s1")
    run.until_owned(fragment, "s2")
    run.publish(ROWS - PIECE, ROWS)
    check_union(run)


# --- planted mistakes ---------------------------------------------------------------------------------------


def acknowledged_before_the_backup_has_it() -> None:
    """Senders keep what the newest checkpoint that is held hasn't got."""
    run, fragment = run_of(counting())
    hosted = run.hosted(fragment)
    assert hosted is not None
    [input] = hosted.inputs.values()

    def ahead() -> bool:
        record = holders(run, fragment)["e"].record
        assert record is not None
        return input.receiver.durable_seq > record.inputs[0].next_seq

    run.publish()
    run.until(lambda: ahead() or "q.out" in run.reader.ended, "all rows come")
    assert not ahead()
    assert input.receiver.durable_seq > 0


def test_nothing_is_acknowledged_that_the_backup_has_not() -> None:
    acknowledged_before_the_backup_has_it()


def lost_late() -> None:
    """Much was fed since the first checkpoint that was held, and acknowledged by the later ones."""
    run, fragment = run_of(counting(), WHOLE, {"m": ["s1", "s2"]})
    run.publish(0, HALF)
    run.fed.run(for_us=2_000_000)
    run.lose("m")
    run.until_owned(fragment, "s2")
    run.publish(HALF, ROWS)
    run.check()


def test_much_was_fed_since_the_first_checkpoint() -> None:
    lost_late()


MISTAKES = {
    "input is acknowledged before the backup covers it": (
        edit("nodes.fragment.durability:Secondaries.covers", "moment.token <= at", "True"),
        acknowledged_before_the_backup_has_it,
    ),
    "an older state is held on, and gone on with": (
        edit(
            "nodes.recovery.held_checkpoint:CheckpointReceiver._whole",
            "= files, manifest, message.token, record",
            "= (self._held or files), (self._manifest if self._held else manifest), message.token, record",
        ),
        lost_late,
    ),
    "what an owner of before sends is taken": (
        edit(
            "nodes.recovery.followings:Followings._check_free",
            "if (replicas.owner, replicas.epoch) != (peer, message.epoch):",
            "if False:",
        ),
        test_a_backup_of_an_older_epoch_is_not_taken,
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_noticed(name: str) -> None:
    edits, notices = MISTAKES[name]
    with planted(Mistake(area="state backup", about=name, edits=edits)), pytest.raises(AssertionError):
        notices()
