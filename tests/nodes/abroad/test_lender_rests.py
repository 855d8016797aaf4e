"""What is lent is computed by its host alone: at home its checkpoints are held, and it comes home exact."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from medusa.nodes.abroad.abroad_moves import HandedOver, Lost, Returned
from medusa.nodes.catalog.kept_permits import PermitIn
from medusa.nodes.recovery.held_checkpoint import CheckpointReceiver
from medusa.query.recovery import ACTIVE, PASSIVE
from medusa.wire.codec import decode_frame, encode_frame
from medusa.wire.messages.move import Fed, FedTogether, Whole
from tests.nodes.abroad.lending import ALLOWANCE, CUT, HALF, KEEP_US, UNITED, Lending, counting, uniting
from tests.nodes.recovery.test_passive_standby import passively
from tests.sim.planting import Mistake, edit, planted

BOTH = pytest.mark.parametrize(("make", "at"), [(counting, CUT), (uniting, UNITED)], ids=["plain", "decided"])
ALL_GUARDED = {"m": ["s"], "e": ["s"], "c": ["s"]}


def flowing(make: Any = counting, at: Any = CUT, **more: Any) -> tuple[Lending, str]:
    run = Lending(make(), at, **more)
    fragment = run.deploy()
    run.publish(0, HALF)
    run.fed.run(for_us=30_000)
    return run, fragment


def held(run: Lending, name: str, fragment: str) -> CheckpointReceiver:
    """What a node at home holds of it."""
    followed = run.node(name).brain.recovery.followings.followed()
    [taking] = [each for each_name, _, each in followed if each_name == fragment]
    assert isinstance(taking, CheckpointReceiver)
    return taking


def computes(run: Lending, name: str, fragment: str) -> bool:
    """Whether a node feeds it, as its owner or along with that."""
    brain = run.node(name).brain
    return fragment in brain.fragments or brain.recovery.followings.shadow(fragment) is not None


def methods(run: Lending, name: str, fragment: str) -> tuple[str, str]:
    node = run.node(name)
    status = node.brain.status(node.clock.monotonic_us())
    [found] = [each for each in status["fragments"] if each["fragment"] == fragment]
    return found["method"], found["method_reason"]


@BOTH
def test_at_home_nothing_is_computed_and_nothing_that_it_is_fed_is_sent(make: Any, at: Any) -> None:
    run, fragment = flowing(make, at)
    run.lend(fragment)
    fed: list[str] = []

    def look(source: str, frames: list[Any]) -> None:
        if isinstance(decode_frame(frames, peer=source)[0], Fed | FedTogether):
            fed.append(source)

    run.fed.network.observe(look)
    first = {name: held(run, name, fragment).held_token for name in "ms"}
    run.publish(HALF)
    run.check()
    for name in "ms":
        run.until(
            lambda name=name: held(run, name, fragment).held_token > first[name],  # type: ignore[misc]
            "later ones come",
        )
        assert not computes(run, name, fragment)
    [guest] = run.moves("h").guests()
    done = (guest.rows_in, guest.rows_out)
    run.until(lambda: run.moves("m").progress(fragment) == done, "the last one comes")
    assert fed == []
    assert methods(run, "h", fragment) == (
        PASSIVE,
        "who lends it holds its checkpoints, and computes nothing of it",
    )


@BOTH
@pytest.mark.parametrize("way", ["recalled", "vanishes"])
def test_home_again_others_follow_it_as_before(make: Any, at: Any, way: str) -> None:
    run, fragment = flowing(make, at)
    run.lend(fragment)
    run.publish(HALF)
    run.fed.run(for_us=40_000)
    if way == "recalled":
        run.recall(fragment)
    else:
        run.node("h").crash()
    run.until_at(fragment, "m")
    assert methods(run, "m", fragment) == (ACTIVE, "")
    run.until(lambda: computes(run, "s", fragment), "s feeds it too")
    run.check()
    assert [type(each) for each in run.events["m"]] == [HandedOver, Returned if way == "recalled" else Lost]


@BOTH
@pytest.mark.parametrize("way", ["recalled", "vanishes", "home dies too"])
def test_one_that_is_recovered_by_passive_standby_is_lent_too(make: Any, at: Any, way: str) -> None:
    run, fragment = flowing(lambda: passively(make()), at, standby=ALL_GUARDED)
    run.lend(fragment)
    run.publish(HALF)
    run.fed.run(for_us=40_000)
    assert not computes(run, "m", fragment)
    if way == "recalled":
        run.recall(fragment)
    else:
        run.node("h").crash()
    if way == "home dies too":
        run.node("m").crash()
        run.until(lambda: run.runs_at(fragment, "s"), "s has it")
        run.node("m").restart()
        run.until(lambda: run.guarded(fragment), "m stands by")
    else:
        run.until_at(fragment, "m")
    run.check()
    assert methods(run, run.replicas(fragment).owner, fragment)[0] == PASSIVE


class Spoils:
    """A host whose first checkpoint comes to m with a sum that isn't that of its file.

    Attributes:
        done: it has come.
    """

    def __init__(self, run: Lending) -> None:
        self._send = run.fed.network.send
        self.done = False
        run.fed.network.send = self.send  # type: ignore[method-assign]

    def send(self, source: str, target: str, frames: list[Any]) -> None:
        message, payload = decode_frame(frames, peer=source)
        if (source, target) == ("h", "m") and isinstance(message, Whole) and not self.done:
            manifest = msgspec.msgpack.decode(bytes(payload or b""))
            name = min(manifest[0])
            nbytes, crc = manifest[0][name]
            manifest[0][name] = (nbytes, crc ^ 1)
            frames = [bytes(each) for each in encode_frame(message, msgspec.msgpack.encode(manifest))]
            self.done = True
        self._send(source, target, frames)


def spoilt() -> bool:
    """Whether m still has what rests there, once such a checkpoint has come."""
    run, fragment = flowing()
    spoils = Spoils(run)
    run.contract(fragment)
    run.send(fragment)
    run.until(lambda: spoils.done, "it has sent that")
    run.fed.run(for_us=20_000)
    rests = run.node("m").brain.recovery.succession.stands_by(fragment)
    run.node("h").crash()
    if rests:
        run.publish(HALF)
        run.until_at(fragment, "m")
        run.check()
    return rests


def test_a_hosts_first_checkpoint_that_came_damaged_takes_nothing_from_who_rests() -> None:
    assert spoilt()


def test_that_is_so_because_it_is_looked_at_before_anything_is_closed() -> None:
    check = "nodes.recovery.held_checkpoint:CheckpointReceiver.check_whole"
    line = "self._record_of(self._checked(message, payload, self._files)[1])"
    mistake = Mistake(area="lent", about="what rests is closed unseen", edits=edit(check, line, "pass"))
    with planted(mistake):
        assert not spoilt()


def test_it_was_handed_over_at_the_row_of_the_hosts_first_checkpoint() -> None:
    run, fragment = flowing()
    run.until(lambda: (run.moves("m").progress(fragment) or (0, 0))[0] == HALF, "half of the rows came")
    run.lend(fragment)
    run.until(lambda: bool(run.events["m"]), "it is said")
    [event] = run.events["m"]
    assert isinstance(event, HandedOver)
    assert event.rows_in == HALF


@pytest.mark.parametrize(
    ("agreed_us", "every_us"), [(0, 2_000_000), (250_000, 250_000), (9_000_000, 2_000_000)]
)
def test_a_guest_takes_checkpoints_as_often_as_was_agreed(agreed_us: int, every_us: int) -> None:
    run, fragment = flowing(checkpoint_every_us=2_000_000)
    permit = PermitIn(
        fragment=fragment,
        participant="alice",
        allows=ALLOWANCE,
        keep_us=KEEP_US,
        checkpoint_every_us=agreed_us,
    )
    run.contract(fragment)
    run.node("h").order(lambda now_us: run.moves("h").permits.permit_in(permit))
    run.send(fragment)
    run.until_at(fragment, "h")
    assert run.node("h").brain.fragments[fragment].checkpoint_every_us == every_us
    run.publish(HALF)
    run.check()
