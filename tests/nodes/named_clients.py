"""Clients that read and publish under a name while a fragment's owner is lost, and what must hold of them."""

from __future__ import annotations

from typing import Any

from medusa.sim.actors.follower import Follower
from medusa.wire.link.receiver import ReceivedRows
from medusa.wire.messages.links import OLDEST
from tests.nodes.taken_over import EVERY_US, HALF, PIECE, ROWS, Run


class Named(Follower):
    """Reads ``q.out`` under a name; what it stores and how far it is change together."""

    def __init__(self, run: Run, name: str, stored: list[Any]) -> None:
        super().__init__(run.fed.world, run.fed.network, name, "e", run.fed.nodes)
        run.fed.clients[name] = self
        self.stored, self.sent_again = stored, 0
        self.read("q.out")

    def _begin(self, name: str, trail: Any, node: str, epoch: int) -> None:
        trail.node, trail.epoch = node, epoch
        self._mind_of(node).subscribe(self._world.now_us, name, OLDEST, name="r")

    def _take(self, name: str, receiver: Any, delivery: Any) -> None:
        super()._take(name, receiver, delivery)
        if isinstance(delivery, ReceivedRows):
            found = self.rows[name].pop().to_pylist()
            assert delivery.seq <= len(self.stored), "a row is missing"
            self.sent_again += min(len(self.stored) - delivery.seq, len(found))
            self.stored += found[len(self.stored) - delivery.seq :]

    def ack(self) -> None:
        for mind in self.minds:
            if (found := mind.subscriptions.get("q.out")) is not None and found.taken_seq is not None:
                found.ack(self._world.now_us, found.taken_seq)


class Program(Follower):
    """A named publisher of a record, which goes on where the node says."""

    def __init__(self, run: Run, name: str, until_row: int) -> None:
        super().__init__(run.fed.world, run.fed.network, name, "e", run.fed.nodes)
        run.fed.clients[name] = self
        self.run, self.until_row, self.begins_at = run, until_row, -1
        self.names["q.rows"] = "p"
        self.publish("q.rows", run.tables["rows"].slice(0, 0), run.schemas["rows"])
        run.fed.world.after(1_000, self._go_on)

    def _go_on(self) -> None:
        if self.dead:
            return
        found = self.publication("q.rows")
        if found is not None and found.begun:
            at = found.sender.log.next_seq
            if self.begins_at < 0:
                self.begins_at = at
            if at < self.until_row:
                self.publish("q.rows", self.run.tables["rows"].slice(at, PIECE), self.run.schemas["rows"])
        self.run.fed.world.after(EVERY_US, self._go_on)

    @property
    def durable(self) -> int:
        found = self.publication("q.rows")
        return found.durable_seq if found is not None and found.begun else 0


def check_subscription(run: Run, fragment: str, *, after_us: int, restarts: bool) -> None:
    """Each row is stored once; what it acknowledged never comes again where that had been heard.

    Args:
        after_us: the owner is lost so long after the acknowledgement.
        restarts: the reader is lost with it.
    """
    stored: list[Any] = []
    reader = Named(run, "named-1", stored)
    run.publish(0, HALF)
    run.until(lambda: len(stored) >= HALF // 2, "half of it comes")
    acknowledged = len(stored)
    reader.ack()
    run.fed.run(for_us=after_us)
    run.lose("m")
    if restarts:
        reader.dead = True
    run.until_owned(fragment, "s1")
    run.publish(HALF)
    if restarts:
        run.fed.run(for_us=1_000_000)
        again = Named(run, "named-2", stored)
        run.until(lambda: "q.out" in again.ended, "all rows come")
        assert again.sent_again <= HALF - acknowledged
    else:
        run.until(lambda: "q.out" in reader.ended, "all rows come")
        assert not reader.sent_again
    assert stored == run.want["out"].to_pylist()


def check_publisher(run: Run, fragment: str, *, after_us: int, restarts: bool) -> None:
    """What it hears is durable a takeover keeps.

    Args:
        after_us: the owner is lost so long after something was durable.
        restarts: the publisher is lost with it.
    """
    program = Program(run, "program-1", HALF)
    run.until(lambda: program.durable >= PIECE, "something is durable")
    run.fed.run(for_us=after_us)
    run.lose("m")
    durable = program.durable
    if restarts:
        program.dead = True
    run.until_owned(fragment, "s1")
    if restarts:
        program = Program(run, "program-2", ROWS)
        run.until(lambda: program.begins_at >= 0, "it is told where to go on")
        assert durable <= program.begins_at <= HALF
    program.until_row = ROWS
    run.until(lambda: program.durable == ROWS, "all is durable")
    program.finish("q.rows", run.schemas["rows"])
    run.check()


def check_last_has_the_name(run: Run, fragment: str, *, after_us: int) -> None:
    """Who opened it last has it after a takeover too, of whatever time what is taken over is.

    Args:
        after_us: the owner is lost so long after the second was told where to go on.
    """
    first = Program(run, "program-1", PIECE)
    run.until(lambda: first.durable == PIECE, "something is durable")
    run.until_guarded(fragment, 2)
    second = Program(run, "program-2", HALF)
    run.until(lambda: second.begins_at == PIECE, "it is told where to go on")
    run.fed.run(for_us=after_us)
    run.lose("m")
    run.until_owned(fragment, "s1")
    second.until_row = ROWS
    run.until(lambda: second.durable == ROWS, "all is durable")
    second.finish("q.rows", run.schemas["rows"])
    refusal = first.publication("q.rows")
    assert refusal is not None
    assert refusal.refusal is not None
    assert refusal.refusal.code == "E_TAKEN"
    run.check()
