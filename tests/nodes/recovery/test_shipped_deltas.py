"""Passive standby: of a later checkpoint only what changed goes, on what the secondary said it holds."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from medusa.engine.state.checkpoint import DELTAS_MAX
from medusa.engine.state.delta import DeltaFiles, read_table, together
from medusa.nodes.recovery.checkpoint_shipping import (
    CheckpointFeed,
    CheckpointManifest,
    CheckpointSender,
    DeltaRecord,
    FileFacts,
    is_state,
)
from medusa.nodes.recovery.held_checkpoint import CheckpointReceiver
from medusa.nodes.reports import Copied
from medusa.ports import Buffer
from medusa.runtime.engine_host.group_names import group_name
from medusa.runtime.store.checkpoint_copy import read_state
from medusa.wire.codec import decode_frame
from medusa.wire.messages.move import Fed, Got, Piece, Ready, Whole
from medusa.wire.outbox import Copy, Outbox, Send
from tests.nodes.recovery.test_passive_standby import held, run_of
from tests.nodes.taken_over import PIECE, Run
from tests.nodes.test_taken_over import CUT, WHOLE, counting
from tests.sim.planting import Mistake, edit, planted

KEYS = 1_200
"""More than 64 KiB of state: what is less is written whole."""

MANY = 4_000
"""So many that a chain ends by the number of its deltas, and not by their size."""

MORE = 30 * PIECE


def keyed(keys: int) -> dict[str, pa.Table]:
    """First each key once, then a few of them again."""
    numbers = range(keys + MORE)
    times = pa.array([n * 1_000 for n in numbers], pa.timestamp("us", "UTC"))
    return {"rows": pa.table({"ts": times, "k": [f"k{n * 7 % keys}" for n in numbers], "v": [*numbers]})}


class Shipped:
    """What goes from the owner to each secondary from now on.

    Attributes:
        fed: elements that the fragment was fed.
    """

    def __init__(self, run: Run, fragment: str) -> None:
        self._run, self._fragment = run, fragment
        self.fed = 0
        self._bytes: dict[int, int] = {}
        self._sizes: dict[int, list[tuple[int, int]]] = {}
        run.fed.network.observe(self._sent)

    def _sent(self, source: str, frames: list) -> None:
        message, payload = decode_frame(frames, peer=source)
        match message:
            case Fed():
                self.fed += 1
            case Piece():
                sofar = self._bytes.get(message.attempt, 0)
                self._bytes[message.attempt] = sofar + len(payload)
            case Whole() if message.token:
                manifest = msgspec.msgpack.decode(payload, type=CheckpointManifest)
                nbytes = self._bytes.pop(message.attempt, 0) + len(payload)
                self._sizes.setdefault(message.attempt, []).append((len(manifest.deltas), nbytes))

    def to(self, node: str) -> list[tuple[int, int]]:
        """Of each checkpoint that went to it: how many deltas it is made of, and bytes that went of it."""
        link = self._run.recovery(self._run.owner(self._fragment)).replication._links[self._fragment, node]
        return self._sizes.get(link.attempt, [])


def beginning(*others: str, at: Any = WHOLE, keys: int = KEYS, **more: Any) -> tuple[Run, str]:
    """All keys have come, and are in a checkpoint that these hold."""
    run, fragment = run_of(counting(), at, *others, tables=keyed(keys), **more)
    run.publishers["rows"].publish("q.rows", run.tables["rows"].slice(0, keys), run.schemas["rows"])
    run.until(lambda: more_than(run) == 0, "all keys came")
    return run, fragment


def more_than(run: Run) -> int:
    """Rows that the reader has beside one of each key."""
    came = sum(batch.num_rows for batch in run.reader.rows.get("q.out", []))
    return came - (len(run.tables["rows"]) - MORE)


def publish(run: Run, begin: int, end: int) -> None:
    """Of the pieces after one row of each key."""
    keys = len(run.tables["rows"]) - MORE
    run.publish(keys + begin * PIECE, keys + end * PIECE)


def go_on(run: Run, steps: int, first: int = 0) -> None:
    """A few rows, whose output waits for a checkpoint, and so on."""
    for step in range(first, first + steps):
        publish(run, step, step + 1)
        run.until(lambda step=step: more_than(run) == (step + 1) * PIECE, "they came")  # type: ignore[misc]


def finish(run: Run, steps: int) -> None:
    publish(run, steps, MORE // PIECE)
    run.check()


def state_held(taking: CheckpointReceiver) -> dict[str, Buffer]:
    """Put together."""
    deltas = [each.files_of(taking._held) for each in taking._manifest.deltas]
    own = {each.key(place) for each in taking._manifest.deltas for place in range(len(each.files))}
    files = {name: data for name, data in taking._held.items() if is_state(name) and name not in own}
    return together(files, deltas, "held")


def check_held(run: Run, fragment: str, node: str) -> None:
    """What it holds is what lies on the disk of its owner."""
    taking = held(run, node, fragment)
    disk = run.fed.nodes[run.owner(fragment)].disk
    files = read_state(disk, group_name(fragment, taking.held_token))[1]
    want = {name: data for name, data in files.items() if is_state(name)}
    have = state_held(taking)
    assert have.keys() == want.keys()
    for name, data in want.items():
        if name.endswith(".arrow"):
            assert read_table(have[name]).equals(read_table(data))
        else:
            assert bytes(have[name]) == bytes(data)


def said(run: Run, what: str) -> list[str]:
    return [line for line in run.fed.last().splitlines() if what in line]


# --- what goes -----------------------------------------------------------------------------------------


def test_only_what_changed_goes_and_a_chain_ends_as_on_the_disk() -> None:
    run, fragment = beginning("s1", keys=MANY)
    shipped = Shipped(run, fragment)
    for step in range(DELTAS_MAX + 6):
        go_on(run, 1, step)
        check_held(run, fragment, "s1")
    assert shipped.fed == 0
    sizes = shipped.to("s1")
    counts = [count for count, _ in sizes]
    assert max(counts) == DELTAS_MAX
    assert 0 in counts[counts.index(DELTAS_MAX) :], "after so many all of it goes"
    wholes = [nbytes for count, nbytes in sizes if count == 0]
    first = [nbytes for count, nbytes in sizes if count == 1]
    assert max(first) < min(wholes) / 20
    assert len(held(run, "s1", fragment)._manifest.deltas) <= DELTAS_MAX
    run.lose("m")
    run.until_owned(fragment, "s1")
    finish(run, DELTAS_MAX + 6)


@pytest.mark.parametrize("after_us", range(0, 120_000, 24_000))
@pytest.mark.parametrize("at", [WHOLE, CUT], ids=["clients", "nodes"])
def test_its_owner_is_killed_at_any_moment(at: Any, after_us: int) -> None:
    killed(at, after_us)


@pytest.mark.full
@pytest.mark.issue(18)
@pytest.mark.parametrize("after_us", range(0, 150_000, 1_500))
@pytest.mark.parametrize("at", [WHOLE, CUT], ids=["clients", "nodes"])
def test_its_owner_is_killed_at_many_moments(at: Any, after_us: int) -> None:
    killed(at, after_us)


def killed(at: Any, after_us: int) -> None:
    """One owner after the other, so long after a delta went."""
    run, fragment = beginning("s1", "s2", at=at, seed=after_us)
    shipped = Shipped(run, fragment)
    go_on(run, 3)
    publish(run, 3, 12)
    run.until(lambda: any(count for count, _ in shipped.to("s1")), "a delta goes")
    run.fed.run(for_us=after_us)
    run.lose("m")
    run.until_owned(fragment, "s1")
    run.until_guarded(fragment, 1)
    check_held(run, fragment, "s2")
    go_on(run, 2, 12)
    run.lose("s1")  # What s2 holds by now is the new owner's, in a higher epoch.
    run.until_owned(fragment, "s2")
    finish(run, 14)


def test_one_that_is_new_and_one_that_restarted_are_sent_all_of_it_once() -> None:
    run, fragment = beginning("s1", "s2")
    go_on(run, 2)
    run.fed.nodes["s2"].crash()
    go_on(run, 2, 2)
    shipped = Shipped(run, fragment)
    run.fed.nodes["s2"].start()
    run.until_guarded(fragment, 2)
    go_on(run, 3, 4)
    assert shipped.to("s1")[0][0] > 0, "the other one goes on"
    assert [count > 0 for count, _ in shipped.to("s2")][:3] == [False, True, True]
    assert len({len(held(run, node, fragment)._manifest.deltas) for node in ("s1", "s2")}) == 2
    for node in ("s1", "s2"):
        check_held(run, fragment, node)
    run.lose("m")
    run.lose("s1")
    run.until_owned(fragment, "s2")
    finish(run, 7)


def test_a_release_that_takes_no_deltas_is_sent_none(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = CheckpointReceiver._whole

    def earlier(self: Any, *args: Any) -> None:
        taken(self, *args)
        self._said_held = 0

    monkeypatch.setattr(CheckpointReceiver, "_whole", earlier)
    run, fragment = beginning("s1")
    shipped = Shipped(run, fragment)
    go_on(run, 3)
    assert len(shipped.to("s1")) >= 3
    assert not any(count for count, _ in shipped.to("s1"))
    check_held(run, fragment, "s1")


def test_without_deltas_a_manifest_is_as_before_there_were_any() -> None:
    assert CheckpointManifest({}).to_bytes() == msgspec.msgpack.encode(({},))


# --- what is refused -----------------------------------------------------------------------------------


def another_base(taking: CheckpointReceiver) -> str:
    taking.held_token -= 1
    return f"and {taking.held_token} is held"


def another_file(taking: CheckpointReceiver) -> str:
    """As if a file of what is held were of another checkpoint."""
    [name] = [name for name in taking._manifest.files if name.endswith(".arrow")][:1]
    fact = taking._manifest.files[name]
    taking._manifest.files[name] = msgspec.structs.replace(fact, crc=fact.crc ^ 1)
    return f"file '{name}' of checkpoint"


def another_epoch(taking: CheckpointReceiver) -> str:
    taking.epoch += 1
    return f"and not of {taking.epoch}"


def older_configuration(taking: CheckpointReceiver) -> str:
    taking._manifest = msgspec.structs.replace(taking._manifest, configuration=1_000)
    return "before 1000"


@pytest.mark.parametrize("harm", [another_base, another_file, another_epoch, older_configuration])
def test_a_delta_that_does_not_fit_is_refused_and_all_of_it_comes(
    harm: Callable[[CheckpointReceiver], str],
) -> None:
    run, fragment = beginning("s1")
    go_on(run, 2)
    taking = held(run, "s1", fragment)
    before = {name: bytes(data) for name, data in taking._held.items()}
    why = harm(taking)
    shipped = Shipped(run, fragment)
    publish(run, 2, 3)
    run.until(lambda: taking._refused > 0, "it is refused")
    assert {name: bytes(data) for name, data in taking._held.items()} == before, "it is never applied"
    assert more_than(run) == 2 * PIECE, "output waits until a checkpoint is held"
    run.until(lambda: more_than(run) == 3 * PIECE, "all of it comes")
    assert held(run, "s1", fragment) is taking, "it is still the same attempt"
    assert [count > 0 for count, _ in shipped.to("s1")][:2] == [True, False]
    assert any(why in line for line in said(run, "delta refused"))
    assert said(run, "secondary refuses a delta")
    assert not said(run, "secondary doesn't follow")
    check_held(run, fragment, "s1")
    taking.epoch = run.replicas(fragment).epoch
    go_on(run, 2, 3)
    assert shipped.to("s1")[-1][0] > 0, "and deltas go on that"
    run.lose("m")
    run.until_owned(fragment, "s1")
    finish(run, 5)


def test_what_was_damaged_in_memory_is_not_used_and_the_next_takes_over() -> None:
    run, fragment = beginning("s1", "s2")
    go_on(run, 2)
    taking = held(run, "s1", fragment)
    assert taking._manifest.deltas
    [name] = [name for name in taking._held if name.endswith("groups.arrow")][:1]
    harmed = bytearray(taking._held[name])
    harmed[len(harmed) // 2] ^= 1
    taking._held[name] = harmed
    run.lose("m")
    run.until_owned(fragment, "s2")
    assert any("was damaged in memory" in line for line in said(run, "fragment can't be opened"))
    finish(run, 2)


def crafted(**wrong: Any) -> tuple[Whole, bytes]:
    """A delta on checkpoint 3, of which something is wrong."""
    fields: dict[str, Any] = {"token": 4, "base": 3, "same": ("a.arrow",), "changed": {}, "files": ()}
    delta = DeltaRecord(**(fields | wrong))
    facts = {name: FileFacts(0, 0) for name in ("positions", "a.arrow", *(f"4:{n}" for n in range(2)))}
    manifest = CheckpointManifest(facts, 1, 1, (delta,))
    about: dict[str, Any] = {"fragment": "q/rows", "attempt": 1, "ticket": 1}
    return Whole(frame=0, files=len(facts), token=4, base=3, **about), manifest.to_bytes()


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"same": ("b.arrow",)}, "is not in the checkpoint before"),
        ({"same": (), "changed": {"a.arrow": 3}}, "or what it is made of is missing"),
        ({"files": ("x.arrow", "y.arrow", "z.arrow")}, "lacks files of its deltas"),
        ({"token": 5}, "is made of deltas [(3, 5)], and 3 is held"),
        ({"base": 2}, "is made of deltas [(2, 4)], and 3 is held"),
    ],
)
def test_deltas_that_cannot_be_put_together_are_refused(wrong: dict[str, Any], why: str) -> None:
    spec: Any = SimpleNamespace(name="q/rows", reads_again=False)
    outbox = Outbox()
    make: Any = None
    about: dict[str, Any] = {"owner": "m", "attempt": 1, "epoch": 1, "coordinator": "e", "ticket": 1}
    taking = CheckpointReceiver(spec, make=make, outbox=outbox, secondary=True, **about)
    whole, payload = crafted(**wrong)
    facts = msgspec.msgpack.decode(payload, type=CheckpointManifest).files
    taking._manifest, taking._held, taking.held_token = (
        CheckpointManifest(facts),
        dict.fromkeys(facts, b""),
        3,
    )
    taking.receive(0, whole, payload)
    assert why in str(outbox.take())
    assert taking.held_token == 3
    assert taking._refused == 1


# --- two secondaries, each with what it holds ----------------------------------------------------------


class Sending:
    """An owner's side of one attempt, by hand."""

    def __init__(self) -> None:
        self.outbox = Outbox()
        about: dict[str, Any] = {"fragment": "q/rows", "attempt": 1, "ticket": 7}
        self.about = about
        hosted: Any = SimpleNamespace(
            changed=lambda now_us, soon: None, mixed=False, released=0, outputs={}, inputs={}
        )
        hosted.spec = SimpleNamespace(name="q/rows")
        self.feed = CheckpointFeed()
        self.sender = CheckpointSender(
            0,
            hosted,
            Ready(**about, window=1 << 20),
            node="m",
            target="s",
            outbox=self.outbox,
            tap=self.feed,
            owned_by=lambda: (1, 1),
        )

    def taken(self, token: int) -> None:
        """The owner has taken a checkpoint."""
        self.feed.begins(token, token)
        self.feed.persisted(token, True, "")
        self.sender.tick(0)

    def asked(self) -> list[Copy]:
        return [each for each in self.outbox.take() if isinstance(each, Copy)]

    def came(self, held: int) -> None:
        """All that went has come; it says that it holds this one."""
        frames = self.sender._frame
        self.sender.got(0, Got(**self.about, frames=frames, opened=True, durable=frames, held=held))

    def sent(self) -> list[str]:
        """Names of files, and the base in the end."""
        found = [each.message for each in self.outbox.take() if isinstance(each, Send)]
        return [each.file if isinstance(each, Piece) else f"on {each.base}" for each in found if _told(each)]


def _told(message: Any) -> bool:
    return isinstance(message, Piece | Whole)


def copied(token: int, base: int = 0) -> Copied:
    if not base:
        return Copied("q/rows", token, {"positions": b"%d" % token, "a.arrow": b"a"}, sum=f"sum {token}")
    plan = {"same": ["a.arrow"], "changed": {}}
    delta = DeltaFiles(token, base, plan, {"b.arrow": b"b"})
    return Copied("q/rows", token, {"positions": b"%d" % token}, "", f"sum {token}", base, (delta,))


def test_two_with_different_bases_are_sent_what_each_lacks() -> None:
    first, second = Sending(), Sending()
    for each, token in ((first, 3), (second, 4)):
        each.taken(token)
        assert [(ask.token, ask.base) for ask in each.asked()] == [(token, 0)]
        each.sender.copied(0, copied(token))
        each.came(token)
        each.outbox.take()
        each.taken(5)
        [ask] = each.asked()
        assert (ask.token, ask.base, ask.base_sum) == (5, token, f"sum {token}")
    for done in (copied(5, base=3), copied(5, base=4)):
        for each in (first, second):
            each.sender.copied(0, done)
        assert second.feed.reading == (done.base == 3), "what stands on the other's is not for it"
    assert first.sent() == ["5:0", "positions", "on 3"]
    assert second.sent() == ["5:0", "positions", "on 4"]


def test_all_goes_where_it_says_that_it_holds_another_one_than_was_sent() -> None:
    sending = Sending()
    sending.taken(3)
    sending.sender.copied(0, copied(3))
    sending.came(held=2)
    sending.outbox.take()
    sending.taken(4)
    assert [(ask.token, ask.base) for ask in sending.asked()] == [(4, 0)]


def test_what_was_refused_counts_as_nothing_and_its_answer_is_the_newest() -> None:
    sending = Sending()
    sending.taken(3)
    sending.sender.copied(0, copied(3))
    sending.came(3)
    sending.taken(4)
    sending.outbox.take()
    sending.sender.copied(0, copied(4, base=3))
    sending.taken(5)
    frames = sending.sender._frame
    refusal = Got(**sending.about, frames=frames, opened=True, durable=0, held=3, refused=frames)
    sending.outbox.take()
    sending.sender.got(0, refusal)
    assert (sending.sender.covered, sending.sender.decided) == (3, 3)
    sending.sender.got(0, refusal)  # It is said again while the answer is read.
    assert [(ask.token, ask.base) for ask in sending.asked()] == [(5, 0)]
    sending.sender.copied(0, copied(5))
    sending.sender.got(0, refusal)
    assert sending.sent() == ["log-5", "positions", "a.arrow", "on 0"][1:]
    sending.came(5)
    assert (sending.sender.covered, sending.sender.decided) == (5, 5)


def test_output_waits_until_a_checkpoint_is_held() -> None:
    sending = Sending()
    for token, base in ((3, 0), (4, 3)):
        sending.taken(token)
        before = sending.sender.decided, sending.sender.covered
        sending.sender.copied(0, copied(token, base))
        frames = sending.sender._frame
        part = Got(**sending.about, frames=frames - 1, opened=bool(base), durable=0, held=base)
        sending.sender.got(0, part)
        assert (sending.sender.decided, sending.sender.covered) == before
        sending.came(token)
        assert (sending.sender.decided, sending.sender.covered) == (token, token)


MISTAKES = {
    "a delta on a wrong base is taken": (
        edit(
            "nodes.recovery.held_checkpoint:CheckpointReceiver._check_base",
            "if len(came) < len(facts) and (message.base != self.held_token or not self.held_token):",
            "if False:",
        )
        + edit("nodes.recovery.held_checkpoint:CheckpointReceiver._check_deltas", "ends != wanted", "False"),
        lambda: test_a_delta_that_does_not_fit_is_refused_and_all_of_it_comes(another_base),
    ),
    "a delta of another epoch is taken": (
        edit(
            "nodes.recovery.held_checkpoint:CheckpointReceiver._check_base",
            "if deltas and manifest.epoch != self.epoch:",
            "if False:",
        ),
        lambda: test_a_delta_that_does_not_fit_is_refused_and_all_of_it_comes(another_epoch),
    ),
    "output is released by what was refused": (
        edit(
            "nodes.recovery.held_checkpoint:CheckpointReceiver._refuse",
            "self._refused, self._told = self._frames, -1",
            "self._refused = self._durable = self._frames",
        ),
        lambda: test_a_delta_that_does_not_fit_is_refused_and_all_of_it_comes(another_base),
    ),
    "deltas read for the other secondary are taken": (
        edit(
            "nodes.recovery.checkpoint_shipping:CheckpointSender.copied",
            "done.base not in (0, self._asked_base)",
            "False",
        ),
        test_two_with_different_bases_are_sent_what_each_lacks,
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_noticed(name: str) -> None:
    edits, notices = MISTAKES[name]
    with planted(Mistake(area="passive standby", about=name, edits=edits)), pytest.raises(AssertionError):
        notices()
