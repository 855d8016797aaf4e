"""Every order in which requests of two drivers, what comes late, the node's taking and deaths can fall.

All schedules are gone through, states that were seen once are not gone on from again. A schedule is played
from its beginning each time: what is there is the real staging and the real spool over disks in memory.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from medusa.elements import START_US, Train
from medusa.errors import LinkError
from medusa.spark.exchange.reader_log import ReaderLog
from medusa.spark.exchange.requests import WholeAttempt, token_of
from tests.engine.segments import Disk
from tests.gateway.dying_disk import DyingDisk
from tests.gateway.test_staging import CODEC, opened, send

ROWS = pa.schema([("v", pa.int64())])


@functools.cache
def payload(*values: int) -> memoryview:
    [(data, _, _)] = CODEC.encode(Train(batch=pa.record_batch({"v": pa.array(values, pa.int64())})))
    return memoryview(data)


class Writing:
    """What was published so far in one schedule.

    Actors: ``old``, a driver that was killed in epoch 0, whose requests are still on their way, an abort
    behind them; ``new``, which runs epoch 0 again and then epoch 1; ``late``, what ``new`` asked, each a
    second time at any later moment; ``take``, the node takes what there is; ``die``, the gateway, once.
    """

    actors = ("old", "new", "late", "take", "die")
    needed = ("old", "new", "take")

    def __init__(self) -> None:
        self.disk, self.node = DyingDisk(), []
        self.staging = opened(self.disk)
        self.old, self.late = 0, 0
        self.asked: list[tuple[Any, ...]] = []
        self.epoch = self.step = self.attempt = 0
        self.decided: list[list[int]] = []
        self.deaths = self.taken = 0

    def can(self, actor: str) -> bool:
        match actor:
            case "old":
                return self.old < 4
            case "new":
                return self.epoch < 2
            case "late":
                return self.late < len(self.asked)
            case "take":
                return bool(self.staging.books.queue("q.in"))
        return self.deaths < 1

    def go(self, actor: str) -> None:
        match actor:
            case "old":
                values = [7, 8]
                self._ask(("stage", "seal", "publish", "abort")[self.old], 0, "f" * 16, values)
                self.old += 1
            case "new":
                self._new()
            case "late":
                self._ask(*self.asked[self.late])
                self.late += 1
            case "take":
                send(self.staging, self.node)
            case "die":
                self.deaths += 1
                self.disk.end = "lost"
                self.disk.power_fails()
                self.staging = opened(self.disk)

    def _new(self) -> None:
        what = ("stage", "seal", "publish")[self.step]
        values = [10 * self.epoch + n for n in range(2 + self.attempt)]
        request = (what, self.epoch, f"{self.epoch}{self.attempt:015x}", values)
        self.asked.append(request)
        if self._ask(*request):
            self.step += 1
            if what == "publish":
                self.epoch, self.step, self.attempt = self.epoch + 1, 0, 0
            return
        # Only because another driver was quicker; Spark runs the task again.
        assert len(self.decided) > self.epoch, f"{request} failed, and nothing of its epoch is published"
        self.step, self.attempt = 0, self.attempt + 1

    def _ask(self, what: str, epoch: int, attempt: str, values: list[int]) -> bool:
        """Whether it went well. What is published is noted."""
        token = token_of("w", epoch, 0, attempt)
        whole = WholeAttempt(token=token, chunks=1, rows=len(values))
        before = self.staging.books.end("q.in")
        try:
            match what:
                case "stage":
                    self.staging.stage("q.in", token, 0, len(values), payload(*values))
                case "seal":
                    self.staging.seal("q.in", whole)
                case "publish":
                    said = self.staging.publish("q.in", "w", "o", epoch, (whole,))
                    assert bool(said) is (epoch < len(self.decided)), "an epoch is published once"
                    if not said:
                        self.decided.append(values)
                case "abort":
                    self.staging.abort("w", epoch, [token])
        except LinkError as error:
            if error.code != "E_STAGE":
                raise
            return False
        finally:
            grown = self.staging.books.end("q.in") - before
            assert grown in (0, len(values) if what == "publish" else 0)
        return True

    def state(self) -> object:
        return (
            *(self.old, self.late, self.epoch, self.step, self.attempt, self.deaths, *map(repr, self.asked)),
            *(repr(self.staging.books.balance()), tuple(self.node), frozenset(self.disk.groups)),
        )

    def ended(self) -> None:
        send(self.staging, self.node)
        expected = [value for values in self.decided for value in values]
        assert self.node == expected, (self.node, expected)
        assert len(self.decided) == 2
        self.staging = opened(self.disk, now=itertools.count(0, 1000).__next__)
        self.staging.collect()
        assert not self.disk.groups, "what nobody published goes by its age"


class Reading:
    """What a query has read so far in one schedule.

    Actors: ``come``, rows from the node; ``query``, the next step of a micro-batch; ``kill``, the driver
    dies, another goes on from the checkpoint, twice; ``late``, its last commit comes a second time; ``die``,
    the gateway, with what it hadn't synced, which the node sends again, twice.
    """

    actors = ("come", "sync", "query", "kill", "late", "die")
    needed = ("come", "sync", "query")
    most = 9

    def __init__(self) -> None:
        self.disk = Disk()
        self.spool = self._opened()
        self.acked = 0
        self.logged: list[tuple[int, int]] = []
        self.done = 0
        self.rows: list[int] = []
        self.step = "plan"
        self.sent: list[int] = []
        self.late = self.kills = self.deaths = 0

    def _opened(self) -> ReaderLog:
        self.disk.last = None
        return ReaderLog(self.disk, ROWS, bytes_max=8)  # Each record has a segment of its own.

    def can(self, actor: str) -> bool:
        match actor:
            case "come":
                return self.spool.next_seq < self.most and self.spool.next_seq - self.spool.durable_seq < 6
            case "sync":
                return self.spool.next_seq > self.spool.durable_seq
            case "query":
                return self.step != "plan" or self.spool.durable_seq > self._planned()
            case "kill":
                return self.kills < 2
            case "late":
                return self.late < len(self.sent) and self.late < 2
        return self.deaths < 2

    def _planned(self) -> int:
        return self.logged[-1][1] if self.logged else 0

    def go(self, actor: str) -> None:
        match actor:
            case "come":
                first = self.spool.next_seq
                batch = pa.record_batch({"v": pa.array(range(first, first + 3), pa.int64())})
                self.spool.append(Train(batch=batch, first_seq=first), int(START_US))
            case "sync":
                self.spool.sync()
                self.acked = self.spool.durable_seq
            case "query":
                self._query()
            case "kill":
                self.kills += 1
                self.step = "read" if len(self.logged) > self.done else "plan"
            case "late":
                self.spool.commit(self.sent[self.late])
                self.late += 1
            case "die":
                self.deaths += 1
                for key, data in self.disk.files.items():
                    del data[self.disk.synced[key] :]
                self.spool = self._opened()
                assert self.spool.durable_seq >= self.acked, "what was acknowledged is on disk"
        assert self.spool.earliest <= (self.logged[self.done - 2][1] if self.done > 1 else 0), (
            "the batch before stays, however often it was committed"
        )

    def _query(self) -> None:
        match self.step:
            case "plan":
                start = self._planned()
                self.logged.append((start, min(self.spool.durable_seq, start + 4)))
                self.step = "commit" if len(self.logged) > 1 else "read"
            case "commit":
                self.sent.append(self.logged[-1][0])
                self.spool.commit(self.sent[-1])
                self.step = "read"
            case "read":
                at, end = self.logged[-1]
                got: list[int] = []
                while at < end:
                    piece = self.spool.read(at, end)
                    assert piece.train is not None
                    assert piece.train.first_seq == at
                    got += piece.train.batch["v"].to_pylist()
                    at = piece.next
                assert got == list(range(*self.logged[-1])), "the same rows each time, no others"
                self.rows = [*self.rows[: self.logged[-1][0]], *got]
                self.step = "done"
            case "done":
                self.done = len(self.logged)
                self.step = "plan"

    def state(self) -> object:
        spool = self.spool
        return (
            *(self.late, self.kills, self.deaths, self.done, self.step, self.acked, spool.next_seq),
            *(spool.durable_seq, spool.earliest, spool._committed, tuple(self.logged), tuple(self.sent)),
        )

    def ended(self) -> None:
        assert self.rows == list(range(self.most))


def played(make: Callable[[], Any], schedule: tuple[str, ...]) -> Any:
    world = make()
    for actor in schedule:
        world.go(actor)
    return world


def schedules(make: Callable[[], Any]) -> int:
    """Play all that lead to states of their own, each step of them; how many there were."""
    count, seen = 0, {make().state()}
    waiting: list[tuple[str, ...]] = [()]
    while waiting:
        before = waiting.pop()
        world = played(make, before)
        able = [actor for actor in world.actors if world.can(actor)]
        for actor in able:
            schedule = (*before, actor)
            try:
                world = world or played(make, before)
                world.go(actor)
                if (state := world.state()) not in seen:
                    seen.add(state)
                    waiting.append(schedule)
                if not any(world.can(each) for each in world.needed):
                    world.ended()
            except BaseException as error:
                error.add_note(" ".join(schedule))
                raise
            world = None
            count += 1
    return count


@pytest.mark.parametrize("world", [Writing, Reading])
def test_in_every_order(world: type[Writing] | type[Reading]) -> None:
    assert schedules(world) > 5000
