"""A node that keeps nothing has just begun and waits for its neighbours: a reader claims what cannot be."""

from __future__ import annotations

import msgspec
import pytest

import medusa as md
from medusa.sim.actors.federation import Federation
from medusa.wire.codec import encode_frame
from medusa.wire.limits import PROTOCOL_VERSION, SEQ_MAX
from medusa.wire.messages import Message
from medusa.wire.messages.links import RESUME, Attach, Heartbeat, Hello
from tests.nodes.test_diskless import SCHEMA, alone, columns, rows

FIRST = Attach(stream="q.out", epoch=1, next_seq=0, durable=0, granted=1 << 20, plain=True)


def restarted() -> tuple[Federation, md.Query]:
    """It is back, was told its query again, and waits for clients."""
    q = md.Query("q")
    source = q.source("rows", SCHEMA, time="ts")
    q.sink("out", source.window("1s").aggregate(n=md.count(), name="w"))
    federation, deployer, publisher, _ = alone(q)
    publisher.publish("q.rows", rows(0, 25), columns(q))
    federation.run(for_us=1_000_000)
    federation.nodes["m"].crash()
    federation.nodes["m"].restart()
    assert federation.answer(deployer, deployer.deploy(q, {"m": ["rows"]}))[0].code == ""
    publisher.publish("q.rows", rows(25, 10), columns(q))
    publisher.finish("q.rows", columns(q))
    return federation, q


def says(federation: Federation, name: str, message: Attach) -> None:
    """A client that is there for three seconds and knows one message."""

    def speak(*messages: Message) -> None:
        for each in messages:
            federation.nodes["m"].deliver(name, [bytes(part) for part in encode_frame(each)])

    speak(Hello(version=PROTOCOL_VERSION, node=name, incarnation=1, client=True), message)
    for number in range(1, 15):
        federation.world.after(200_000 * number, lambda: speak(Heartbeat(incarnation=1)))


@pytest.mark.parametrize(
    "claims",
    [
        {"next_seq": RESUME},
        {"next_seq": 3, "durable": 7},
        {"next_seq": RESUME, "plain": False, "name": "n"},
    ],
    ids=str,
)
def test_a_claim_that_cannot_be_harms_only_who_made_it(claims):
    """It is looked at when the node begins, while others speak or time passes: they aren't to blame."""
    federation, _ = restarted()
    says(federation, "stranger", msgspec.structs.replace(FIRST, **claims))
    reader = federation.client("late", "m")
    reader.read("q.out")
    assert federation.run(lambda: bool(reader.ended)), federation.last()
    assert sum(sum(b.column("n").to_pylist()) for b in reader.rows["q.out"]) > 0
    (output,) = federation.nodes["m"].brain.fragments["q/rows"].outputs.values()
    assert "stranger" not in output.sender.receivers


def test_a_client_that_claims_rows_without_a_note_moves_no_numbers():
    """Else one word of a reader takes a stream to the last number that there is."""
    federation, _ = restarted()
    claim = msgspec.structs.replace(FIRST, next_seq=SEQ_MAX - 5, durable=SEQ_MAX - 5, resumed=True)
    says(federation, "stranger", claim)
    reader = federation.client("late", "m")
    reader.read("q.out")
    assert federation.run(lambda: bool(reader.ended)), federation.last()
    (status,) = federation.nodes["m"].brain.status(0)["fragments"]
    assert not status["lost_unknown"]
    (output,) = federation.nodes["m"].brain.fragments["q/rows"].outputs.values()
    assert output.rows < 10


def test_clients_of_an_earlier_life_have_their_time_to_come_back():
    """Nobody else knows of their rows, and nobody knows yet that there are such clients."""
    q = md.Query("q")
    q.sink("out", q.source("rows", SCHEMA, time="ts").filter("v > 0", name="f"))
    federation, deployer, _, _ = alone(q)
    node = federation.nodes["m"]
    node.crash()
    for client in ("pub", "reader"):
        federation.network.cut(client, "m")
    node.restart()
    assert federation.answer(deployer, deployer.deploy(q, {"m": ["rows"]}))[0].code == ""
    fragment = node.brain.fragments["q/rows"]
    federation.run(for_us=1_000_000)
    assert not fragment._started
    federation.run(for_us=1_500_000)
    assert fragment._started
