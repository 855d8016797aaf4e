"""Contracts begin and end: nothing goes without one, all comes home after it, and nobody says more than it
may."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from medusa.errors import LinkError
from medusa.nodes.abroad.abroad_moves import HandedOver, NotSent, Returned
from medusa.nodes.abroad.permits import Allowance, PermitIn, PermitOut
from medusa.nodes.message_table import MESSAGES, PERMIT
from medusa.wire.codec import encode_frame
from medusa.wire.messages import Message
from medusa.wire.messages.configuration import Accept, Ballot, Configuration, Configure, Prepare
from medusa.wire.messages.links import Attach
from medusa.wire.messages.move import (
    Fed,
    FedTogether,
    GiveUp,
    Got,
    Move,
    Piece,
    Ready,
    Receive,
    Seed,
    Standing,
    Whole,
)
from tests.nodes.abroad.lending import ALLOWANCE, HALF, KEEP_US, Lending, counting
from tests.nodes.abroad.test_lending import flowing


def kinds(run: Lending, name: str = "m") -> list[type]:
    return [type(each) for each in run.events[name]]


def gone(run: Lending, fragment: str, host: str = "h") -> bool:
    """Nothing of it is at its host."""
    brain = run.node(host).brain
    left = fragment in (*brain.fragments, *brain.catalog.fragments, *brain.catalog.permits.into)
    known = run.query in (*brain.catalog.configurations, *brain.catalog.owners)
    return not left and not known and fragment not in brain.recovery.followings.status()


def end_out(run: Lending, fragment: str) -> None:
    run.node("m").order(lambda now_us: run.moves("m").permits.end_out(fragment))


def end_in(run: Lending, fragment: str) -> None:
    run.node("h").order(lambda now_us: run.moves("h").permits.end_in(fragment))


# --- what isn't sent --------------------------------------------------------------------------------------


def refused(run: Lending) -> NotSent:
    run.until(lambda: bool(run.events["m"]), "an answer")
    [event] = run.events["m"]
    assert isinstance(event, NotSent)
    return event


def test_nothing_goes_without_a_permit_of_ours() -> None:
    run, fragment = flowing()
    run.send(fragment)
    assert refused(run).code == "E_NO_CONTRACT"
    assert run.runs_at(fragment, "m")
    run.publish(HALF)
    run.check()


def test_nothing_is_taken_without_a_permit_of_the_host() -> None:
    run, fragment = flowing()
    permit = PermitOut(fragment=fragment, participant="bob", node="h")
    run.node("m").order(lambda now_us: run.moves("m").permits.permit_out(permit))
    run.send(fragment)
    assert refused(run).code == "E_NO_CONTRACT"
    assert run.replicas(fragment).guest == ""
    assert gone(run, fragment)


def test_who_lends_it_has_to_be_guarded() -> None:
    run = Lending(counting())
    request = run.deployer.deploy(run.q, run.at)
    assert run.fed.answer(run.deployer, request)[0].code == ""
    run.contract("q/kind")
    run.send("q/kind")
    event = refused(run)
    assert event.code == "E_STANDBY"
    assert "--standby" in event.hint


@pytest.mark.parametrize(
    ("allows", "code"),
    [
        (Allowance(boxes=("filter",)), "E_OFFER"),
        (msgspec.structs.replace(ALLOWANCE, streams=("other.*",)), "E_OFFER"),
        (msgspec.structs.replace(ALLOWANCE, spec_bytes=10), "E_OFFER"),
        (msgspec.structs.replace(ALLOWANCE, columns=("ts", "k")), "E_OFFER"),
    ],
)
def test_what_the_contract_does_not_name_is_refused_and_stays(allows: Allowance, code: str) -> None:
    run, fragment = flowing()
    run.contract(fragment)
    permit = PermitIn(fragment=fragment, participant="alice", allows=allows, keep_us=KEEP_US)
    run.node("h").order(lambda now_us: run.moves("h").permits.permit_in(permit))
    run.send(fragment)
    assert refused(run).code == code
    run.publish(HALF)
    run.check()
    run.until(lambda: run.replicas(fragment).guest == "", "the host is sent away")


def test_what_clients_reach_stays_at_home() -> None:
    at = {"e": ["rows", "first", "kind"], "m": ["last", "out"], "c": []}
    run = Lending(counting(), {"e": at["e"], "m": at["m"]}, standby={"m": ["s"]})
    fragment = run.deploy()
    run.contract(fragment)
    run.send(fragment)
    assert refused(run).code == "E_MOVE"


def test_a_query_of_the_hosts_own_of_that_name_is_in_the_way() -> None:
    run, fragment = flowing()
    client = run.client("bob", "own", "h")
    assert (
        run.fed.answer(client, client.deploy(counting(), {"h": ["rows", "first", "kind", "last", "out"]}))[
            0
        ].code
        == ""
    )
    run.contract(fragment)
    run.send(fragment)
    assert refused(run).code == "E_DEPLOYED"


# --- ends -------------------------------------------------------------------------------------------------


def test_the_owners_end_brings_it_home_and_the_hosts_clears_it() -> None:
    run, fragment = flowing()
    run.lend(fragment)
    run.publish(HALF)
    end_out(run, fragment)
    run.until_at(fragment, "m")
    assert kinds(run) == [HandedOver, Returned]
    run.until(lambda: run.moves("m").permits.out(fragment) is None, "the permit is forgotten")
    end_in(run, fragment)
    run.until(lambda: gone(run, fragment), "nothing is left")
    run.check()


def test_the_hosts_end_gives_it_back() -> None:
    run, fragment = flowing()
    run.lend(fragment)
    run.publish(HALF)
    end_in(run, fragment)
    run.until_at(fragment, "m")
    run.until(lambda: gone(run, fragment), "nothing is left")
    run.check()
    assert kinds(run) == [HandedOver, Returned]
    assert "gives it back" in run.events["m"][1].why


def test_a_host_gives_it_back_and_may_have_it_again() -> None:
    run, fragment = flowing()
    run.lend(fragment)
    assert run.moves("h").giving_back() == {}
    asked_us = run.node("h").clock.monotonic_us()
    run.node("h").order(lambda now_us: run.moves("h").give_back(now_us, fragment))
    assert run.moves("h").giving_back() == {fragment: asked_us}
    run.node("h").order(lambda now_us: run.moves("h").give_back(now_us + 1, fragment))
    assert run.moves("h").giving_back() == {fragment: asked_us}, "asked again it waits no longer for it"
    run.until_at(fragment, "m")
    run.until(lambda: run.moves("h").giving_back() == {}, "it isn't on its way any more")
    run.until(lambda: fragment not in run.node("h").brain.fragments, "the host has dropped it")
    run.send(fragment)
    run.until_at(fragment, "h")
    run.publish(HALF)
    run.check()
    assert run.replicas(fragment).epoch == 4


@pytest.mark.parametrize("side", ["m", "h"])
def test_a_permit_ends_by_its_time(side: str) -> None:
    run, fragment = flowing()
    run.lend(fragment)
    permits = run.moves(side).permits
    wall_us = run.node(side).brain.wall.at(run.node(side).clock.monotonic_us())
    assert wall_us is not None
    known: Any = permits.out(fragment) if side == "m" else permits.into(fragment)
    put = permits.permit_out if side == "m" else permits.permit_in
    until = msgspec.structs.replace(known, until_us=wall_us + 300_000)
    run.node(side).order(lambda now_us: put(until))
    run.fed.run(for_us=200_000)
    assert run.runs_at(fragment, "h")
    run.until_at(fragment, "m")
    run.publish(HALF)
    run.check()


def test_state_is_kept_for_an_owner_that_is_away_and_not_for_longer() -> None:
    run, fragment = flowing()
    run.lend(fragment)
    for name in ("e", "m", "s", "w", "c"):
        run.fed.network.cut(name, "h")
    end_in(run, fragment)
    run.fed.run(for_us=KEEP_US - 200_000)
    assert fragment in run.node("h").brain.fragments
    run.until(lambda: gone(run, fragment), "it is turned out")
    run.fed.network.heal_all()
    run.until_at(fragment, "m")
    run.publish(HALF)
    run.check()


@pytest.mark.parametrize("name", ["h", "m"])
@pytest.mark.parametrize("moment_us", [0, 5_000, 20_000, 60_000])
def test_an_end_is_carried_out_whoever_dies(name: str, moment_us: int) -> None:
    run, fragment = flowing(seed=moment_us + 1)
    run.lend(fragment)
    run.publish(HALF)
    end_in(run, fragment)
    end_out(run, fragment)
    run.fed.run(for_us=moment_us)
    run.node(name).crash()
    run.fed.run(for_us=50_000)
    run.node(name).restart()
    end_in(run, fragment)  # What was said may not have been on disk: the market says it again.
    end_out(run, fragment)
    run.check()
    run.until(lambda: gone(run, fragment), "nothing is left")
    run.until(lambda: run.moves("m").permits.out(fragment) is None, "the permit is forgotten")


def test_an_undeployed_query_is_gone_at_its_host_too() -> None:
    run, fragment = flowing()
    run.lend(fragment)
    reply, _ = run.fed.answer(run.deployer, run.deployer.undeploy("q"))
    assert reply.code == ""
    brain = run.node("h").brain
    run.until(lambda: fragment not in brain.fragments and "q" not in brain.catalog.owners, "it is gone")


# --- what nobody may say ------------------------------------------------------------------------------------

FRAGMENT = "q/kind"
ABOUT: dict[str, Any] = {"fragment": FRAGMENT, "attempt": 1}
FRAME: dict[str, Any] = {**ABOUT, "ticket": 1, "frame": 0}
PASSED = Fed(**FRAME, kind=4, number=-1, source="first", peer="e", next_seq=1, boundary_us=0)
STRAY: list[tuple[Message, bytes | None]] = [
    (Seed(**ABOUT, epoch=2, coordinator="e"), b"spec"),
    (Ready(**ABOUT, ticket=1, window=1000), None),
    (Piece(**FRAME, file="f", offset=0, nbytes=1, crc=0), b"x"),
    (Whole(**FRAME, files=0), None),
    (PASSED, None),
    (
        FedTogether(**ABOUT, ticket=1, fed=(PASSED, msgspec.structs.replace(PASSED, frame=1)), nbytes=(0, 0)),
        None,
    ),
    (Standing(**FRAME), b"\x92\x80\x90"),
    (Got(**{**ABOUT, "ticket": 1}, frames=1, opened=True), None),
    (GiveUp(**ABOUT), None),
    (Move(request=7, fragment=FRAGMENT, to="m", timeout_ms=1000), None),
    (Move(request=8, fragment=FRAGMENT, to="g", timeout_ms=1000, reads=()), None),
    (
        Configure(
            request=9,
            configuration=Configuration(query="q", number=99, coordinator="g", voters=("g",), fragments=()),
        ),
        None,
    ),
]


def said(run: Lending, source: str, target: str, message: Message, payload: bytes | None) -> None:
    run.fed.network.send(source, target, [bytes(each) for each in encode_frame(message, payload)])
    run.fed.run(for_us=30_000)


def stands(run: Lending, name: str) -> tuple[Any, ...]:
    brain = run.node(name).brain
    return (
        dict(brain.catalog.configurations),
        dict(brain.catalog.fragments),
        dict(brain.catalog.owners),
        brain.recovery.followings.status(),
        brain.catalog.permits.lent.copy(),
    )


def test_every_message_that_a_contract_allows_is_tried_here() -> None:
    assert {type(message) for message, _ in STRAY} == {
        kind for kind, row in MESSAGES.items() if row.rights.abroad is PERMIT
    }


@pytest.mark.parametrize(("message", "payload"), STRAY, ids=[type(each).__name__ for each, _ in STRAY])
@pytest.mark.parametrize("lent", [False, True])
def test_who_has_no_contract_is_refused_and_nothing_changes(
    message: Message, payload: bytes | None, lent: bool
) -> None:
    run, fragment = flowing()
    if lent:  # To another node than that which speaks.
        run.lend(fragment)
    run.fed.run(for_us=300_000)
    before = {name: stands(run, name) for name in ("m", "s", "h")}
    for target in ("m", "s"):
        count = run.node(target).brain.refusals.get("E_NO_CONTRACT", 0)
        said(run, "g", target, message, payload)
        assert run.node(target).brain.refusals["E_NO_CONTRACT"] == count + 1
    assert {name: stands(run, name) for name in ("m", "s", "h")} == before
    run.publish(HALF)
    run.check()


@pytest.mark.parametrize(("message", "payload"), STRAY, ids=[type(each).__name__ for each, _ in STRAY])
def test_a_stranger_is_refused_by_a_host_too(message: Message, payload: bytes | None) -> None:
    run, fragment = flowing()
    said(run, "e", "h", message, payload)
    assert run.node("h").brain.refusals["E_NO_CONTRACT"] == 1
    assert gone(run, fragment)


@pytest.mark.parametrize("kind", [Configure, Prepare, Accept, Receive])
def test_a_host_neither_votes_nor_proposes_nor_says_what_is_decided(kind: type) -> None:
    run, fragment = flowing()
    run.lend(fragment)
    run.fed.run(for_us=300_000)
    before = run.newest()
    mine = msgspec.structs.replace(before, number=before.number + 1, coordinator="h", voters=("h",))
    ballot, life = Ballot(5, "h"), before.life
    message = {
        Configure: Configure(request=0, configuration=mine),
        Prepare: Prepare(request=1, query="q", life=life, number=before.number + 1, ballot=ballot),
        Accept: Accept(request=2, ballot=ballot, configuration=mine),
        Receive: Receive(fragment=fragment, attempt=1, epoch=9, coordinator="e"),
    }[kind]
    said(run, "h", "m", message, b"spec" if kind is Receive else None)
    code = "E_NO_CONTRACT" if kind is Configure else "E_ROLE"
    assert run.node("m").brain.refusals[code] == 1
    assert run.newest().fragments == before.fragments
    run.publish(HALF)
    run.check()


def test_a_host_reads_nothing_but_what_its_guest_reads() -> None:
    run, fragment = flowing()
    run.lend(fragment)
    for stream, node, part, sink in (("q.out", "c", "q/last", "out"), ("q.kind", "m", "", "")):
        for plain in (False, True):
            attach = Attach(stream=stream, epoch=1, next_seq=0, durable=0, granted=1000, plain=plain)
            said(run, "h", node, attach, None)
        if part:
            assert "h" not in run.node(node).brain.fragments[part].outputs[sink].sender.receivers
    assert fragment in run.node("h").brain.fragments


def test_a_host_is_told_of_its_guest_and_its_neighbours_alone() -> None:
    run, fragment = flowing(standby={"m": ["s"], "c": ["s"]})
    run.lend(fragment)
    told = run.node("h").brain.recovery.agreement.current("q")
    home = run.newest()
    assert told is not None
    assert told.number == home.number
    assert told.parts is None
    assert told.witnesses == ()
    assert told.voters == (home.coordinator,)
    assert {each.fragment for each in told.fragments} == {fragment, "q/last"}


def test_what_a_host_sends_back_is_what_it_was_lent() -> None:
    run, fragment = flowing()
    run.lend(fragment)
    home, host = run.node("m").brain, run.node("h").brain
    spec = host.catalog.fragments[fragment]
    other = msgspec.structs.replace(spec, node="m", standby=("s",), stream_version=3)
    home.abroad.admits(0, "h", other)  # Versions are learned.
    linked = msgspec.structs.replace(spec, readers={"kind": ("g",)})
    renamed = msgspec.structs.replace(spec, streams={"kind": "q.else"})
    for wrong in (linked, renamed):
        with pytest.raises(LinkError) as caught:
            home.abroad.admits(0, "h", wrong)
        assert caught.value.code == "E_SPEC"
