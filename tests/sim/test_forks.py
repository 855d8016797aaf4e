"""A simulated node forks a fragment as a real one does: its host is that of a process."""

from __future__ import annotations

from typing import Any

import medusa as md
from medusa.nodes.reports import Forked, Ran
from medusa.runtime.engine_host.host import Done, EngineHost
from medusa.sim.actors.federation import Federation
from medusa.wire.fork_names import fork_name
from medusa.wire.outbox import CloseFragment, Fork, RunFragment
from tests.runtime.engine_by_hand import SCHEMA, made, rows

TOKEN = 17


class Telling(EngineHost):
    """Keeps what it tells of forks."""

    told: list[Any]

    def finished(self) -> list[Done]:
        done = super().finished()
        self.told += [each for each in done if isinstance(each, Forked | Ran)]
        return done


def test_a_simulated_node_forks_a_fragment() -> None:
    q = md.Query("q")
    q.sink("out", q.source("rows", SCHEMA, time="ts").filter("v >= 0"))
    federation = Federation(1, ["a"])
    Telling.told = []
    node = federation.nodes["a"]
    node.make_host = Telling
    federation.start()
    client = federation.client("c", "a")
    reply, _ = federation.answer(client, client.deploy(q, {"a": ["rows"]}))
    assert not reply.code
    [name] = node.brain.fragments
    fork = fork_name(name, 1)
    node.brain.outbox.append(Fork(token=TOKEN, fragment=name, fork=fork))
    node.brain.outbox.append(RunFragment(fragment=fork, stream="rows", element=rows(3)))
    node.soon()
    assert federation.run(lambda: len(Telling.told) == 2, for_us=1_000_000)
    forked, ran = Telling.told
    assert (forked, ran.fragment) == (Forked(TOKEN, fork), fork)
    assert [row["v"] for row in made(ran)] == [0, 1, 2]
    node.brain.outbox.append(CloseFragment(fragment=fork))
    node.brain.outbox.append(RunFragment(fragment=fork, stream="rows", element=rows(3)))
    node.soon()
    federation.run(for_us=1_000_000)
    assert len(Telling.told) == 2
