"""``medusa gateway`` as a process, killed again and again, behind a line that is cut: each row once."""

from __future__ import annotations

import contextlib
import random
import signal
import threading

import pyarrow as pa
import pytest

from medusa.spark.options import options_from
from tests.gateway.fake_spark import DriverDiedError, Faults, Query, QueryFailedError
from tests.gateway.here import running, values
from tests.gateway.processes import EXPECTED, GatewayProcess, Line, World, all_there
from tests.gateway.processes import ROWS as ROWS_THERE

pytestmark = pytest.mark.system

WAIT = "60s"
ROWS = 36


class Copy(Query):
    """The query of the fake Spark, over sockets."""

    def __init__(self, address: str, faults: Faults) -> None:
        super().__init__(faults, rows=9)
        plain = {"endpoint": address, "timeout": WAIT}
        self.options = options_from({**plain, "stream": "a.out", "bytesPerPartition": "1"})
        self.to = options_from({**plain, "stream": "b.rows"})

    def through(self, rows: int) -> bool:
        """All rows were copied, as far as Spark knows."""
        last = max(self.offsets, default=-1)
        return last in self.commits and self.offsets[last][1]["row"] == rows


class Trouble(Faults):
    """Faults of the driver and its tasks; and now and then, while it goes on, the gateway is killed, or the
    line is cut."""

    def __init__(self, chance: random.Random, process: GatewayProcess, line: Line) -> None:
        super().__init__()
        self._chance, self._process, self._line = chance, process, line
        self._thread = threading.Thread()
        self.kills = self.cuts = 0

    def again(self) -> Trouble:
        """Another life of the driver."""
        self.at = self.steps + self._chance.randrange(12)
        self.kind = self._chance.choice(["die", "task", "tasks", "commit"])
        return self

    def step(self, *kinds: str) -> bool:
        if self.steps % 5 == 2 and not self._thread.is_alive():
            arguments = (self.kills <= self.cuts, 0.05 * self._chance.random())
            self._thread = threading.Thread(target=self._strike, args=arguments)
            self._thread.start()
        return super().step(*kinds)

    def _strike(self, kills: bool, after_s: float) -> None:
        threading.Event().wait(after_s)
        if kills:
            self._process.end(signal.SIGKILL)
            self._process.start()
            self.kills += 1
        else:
            self._line.cut()
            self.cuts += 1

    def join(self) -> None:
        if self._thread.ident is not None:
            self._thread.join()


def test_gateway_and_driver_are_killed_and_the_line_is_cut(tmp_path):
    with running(tmp_path, values("a"), values("b")) as (fed, address):
        fed.publish("a.rows", {"v": list(range(ROWS))})
        fed.flush(WAIT)
        process = GatewayProcess(tmp_path, address)
        line = Line(process.socket)
        trouble = Trouble(random.Random(7), process, line)
        of = Copy(line.address, trouble)
        try:
            while not of.through(ROWS):
                trouble.again()
                with contextlib.suppress(DriverDiedError, QueryFailedError):
                    of.run()
            trouble.join()
            # What was published is the gateway's until the node has it: it is ended once all is there.
            found: list[int] = []
            with fed.subscribe("b.out", from_="oldest") as trains:
                while len(found) < ROWS:
                    found += trains.next(WAIT).batch["v"].to_pylist()
        finally:
            trouble.join()
            code = process.end(signal.SIGTERM)
            line.close()
        assert code == 0
        assert trouble.kills
        assert trouble.cuts
        assert found == [2 * n for n in range(ROWS)], process.log()


class Rows(Copy):
    """The same over the rows of a ``World``."""

    def __init__(self, address: str, faults: Faults) -> None:
        super().__init__(address, faults)
        self.rows = 40

    def doubled(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        values = pa.array([2 * each for each in batch["v"].to_pylist()], pa.int64())
        return pa.record_batch({"ts": batch["ts"], "v": values})


@pytest.mark.full
@pytest.mark.issue(7)
@pytest.mark.parametrize("seed", range(40))
def test_each_row_is_there_once_whatever_is_killed_and_cut(tmp_path, seed):
    chance = random.Random(seed)
    world = World(tmp_path, "spark")
    try:
        kinds = chance.sample(["gateway", "line", "wire", "node"], chance.randint(2, 3))
        print(f"seed {seed}: {world.draw(chance, kinds)}")
        faults = Faults()
        of = Rows(world.line.address, faults)
        all_there(world.line.address, "spark", ROWS_THERE)
        while not of.through(ROWS_THERE):
            faults.at = faults.steps + chance.randrange(1, 30)
            faults.kind = chance.choice(["die", "task", "tasks", "commit"])
            with contextlib.suppress(DriverDiedError, QueryFailedError):
                of.run()
        assert world.copied() == EXPECTED, world.came
    finally:
        world.close()
