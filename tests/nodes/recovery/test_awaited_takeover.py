"""Whoever has lost the node of a stream hears where it is as soon as a node knows."""

from __future__ import annotations

import json
from typing import Any

import pytest

from medusa.nodes.names.awaited_epochs import AWAITED_MAX, AWAITED_US, AwaitedEpochs
from medusa.wire.messages.directory import Lookup
from tests.nodes.taken_over import Run
from tests.nodes.test_taken_over import WHOLE, counting, run_of


def asking(run: Run, node: str, **more: Any) -> tuple[Any, int]:
    client = run.fed.clients.get(f"asks-{node}") or run.fed.client(f"asks-{node}", node)
    assert run.fed.run(lambda: client.mind.up)
    number = client.mind.request(lambda number: Lookup(request=number, name="q.out", kind="stream", **more))
    client.do(lambda mind: None)
    return client, number


def place(run: Run, asked: tuple[Any, int]) -> dict[str, Any]:
    reply, document = run.fed.answer(*asked)
    assert reply.code == "", reply
    found: dict[str, Any] = json.loads(bytes(document or b""))
    return found


def guarded() -> tuple[Run, str]:
    run, fragment = run_of(counting(), WHOLE, {"m": ["s1", "s2"]})
    run.until_guarded(fragment, 2)
    return run, fragment


@pytest.mark.parametrize("node", ["e", "w", "s1"])
def test_the_answer_comes_when_another_node_has_it_and_not_before(node: str) -> None:
    run, fragment = guarded()
    known = place(run, asking(run, node))
    assert known["node"] == "m"
    run.lose("m")
    run.until(lambda: run.recovery("s1").agreement.proposing("q"), "s1 proposes itself")
    client, number = asking(run, node, above=known["epoch"])
    run.until(lambda: run.owner(fragment) == "s1", "it is decided")
    assert number not in client.mind.replies, "s1 hasn't begun"
    run.until(lambda: number in client.mind.replies, "it is answered")
    found = place(run, (client, number))
    assert (found["node"], found["epoch"] > known["epoch"]) == ("s1", True)
    assert run.owner(fragment) == "s1"
    again = place(run, asking(run, node, above=known["epoch"]))
    assert (again["node"], again["epoch"]) == ("s1", found["epoch"]), "known already: at once"


def test_nothing_that_changes_is_said_after_a_while() -> None:
    run, _ = guarded()
    known = place(run, asking(run, "w"))
    client, number = asking(run, "w", above=known["epoch"])
    begun_us = run.fed.world.now_us
    found = place(run, (client, number))
    assert found == known
    assert AWAITED_US <= run.fed.world.now_us - begun_us < 2 * AWAITED_US


def test_a_client_that_has_gone_is_told_nothing() -> None:
    run, _ = guarded()
    known = place(run, asking(run, "w"))
    client, _ = asking(run, "w", above=known["epoch"])
    naming = run.fed.nodes["w"].brain.naming
    assert run.fed.run(lambda: len(naming._awaited._waiting) == 1)
    client.dead = True
    run.fed.nodes["w"].brain._lost(run.fed.world.now_us, client.name)
    assert not naming._awaited._waiting


def test_who_may_have_it_next_is_said_by_all_that_decide_on_it() -> None:
    run, _ = guarded()
    for node in ("m", "w", "s1"):
        found = place(run, asking(run, node))
        assert [each["node"] for each in found["successors"]] == ["s1", "s2"], node
    run.lose("m")
    run.until(lambda: place(run, asking(run, "w"))["node"] == "s1", "s1 has it")
    assert place(run, asking(run, "w"))["successors"][0]["node"] == "s2"


def test_questions_are_answered_when_due_and_too_many_at_once() -> None:
    epochs = {"a": 3, "b": 3}
    awaited = AwaitedEpochs(lambda message: epochs.get(message.name, 0))

    def question(number: int, name: str, above: int) -> Lookup:
        return Lookup(request=number, name=name, kind="stream", above=above)

    def due(now_us: int) -> list[int]:
        return [each.message.request for each in awaited.take(now_us)]

    assert awaited.wake_at_us() is None
    assert not awaited.waits(0, "c", question(1, "a", 0), None), "it doesn't want to wait"
    assert not awaited.waits(0, "c", question(2, "a", 2), None), "it is there"
    assert awaited.waits(0, "c", question(3, "a", 3), None)
    assert awaited.waits(5, "c", question(4, "b", 3), None)
    assert awaited.waits(7, "d", question(3, "unknown", 1), None)
    assert (due(8), awaited.wake_at_us()) == ([], AWAITED_US)
    epochs["b"] = 4
    assert due(9) == [4]
    assert due(AWAITED_US) == [3]
    assert awaited.wake_at_us() == AWAITED_US + 7
    assert awaited.waits(8, "d", question(4, "unknown", 1), None)
    assert awaited.waits(9, "d", question(3, "unknown", 1), None), "said again, it waits from then on"
    assert awaited.wake_at_us() == AWAITED_US + 8
    awaited.drop("d")
    assert awaited.wake_at_us() is None
    for number in range(AWAITED_MAX):
        assert awaited.waits(0, "c", question(number, "a", 3), None)
    assert not awaited.waits(0, "d", question(1, "a", 3), None)
