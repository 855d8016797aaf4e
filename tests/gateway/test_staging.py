"""Epochs on the gateway's disk: it dies at every step, in every way, and each row is in the stream once."""

from __future__ import annotations

import itertools

import msgspec
import pyarrow as pa
import pytest

from medusa.elements import Train
from medusa.engine.state.checkpoint import crc32c
from medusa.errors import DataError, FullError, LinkError, StateError
from medusa.query.boxes import Field
from medusa.spark.exchange import staging as staging_module
from medusa.spark.exchange.delivery import deliver
from medusa.spark.exchange.requests import WholeAttempt, token_of
from medusa.spark.exchange.staging import Staging
from medusa.wire.codec import TrainCodec
from tests.gateway.dying_disk import ENDS, DiedError, DyingDisk, Logs
from tests.gateway.fake_spark import left_of

SCHEMA = (Field("v", "int64"),)
CODEC = TrainCodec(SCHEMA, timed=False)
FIELDS = [f"{number:016x}" for number in range(100)]


class Port:
    """A named durable publisher at a node: what was flushed is durable, more may be."""

    def __init__(self, node: list[int], dies: DyingDisk | None = None) -> None:
        self.node, self.sent, self._dies = node, list(node), dies

    @property
    def next_row(self) -> int:
        return len(self.sent)

    @property
    def durable_row(self) -> int:
        return len(self.node)

    def check(self) -> None:
        pass

    def finish(self) -> None:
        pass

    def publish(self, data: pa.RecordBatch) -> None:
        self.sent += data["v"].to_pylist()

    def flush(self, timeout: str) -> None:
        if self._dies is None or not self._dies._step():
            self.node[:] = self.sent
            return
        self.node[:] = left_of(self.node, self.sent, self._dies.end)
        self._dies._die()


def opened(disk: DyingDisk, *, bytes_max: int = 1 << 20, age_s: float = 100.0, now=lambda: 0.0) -> Staging:
    return Staging(disk, Logs(disk), bytes_max=bytes_max, now_s=now, age_s=age_s)


def stage_chunks(staging: Staging, token: str, *chunks: list[int]) -> None:
    for number, values in enumerate(chunks):
        batch = pa.record_batch({"v": pa.array(values, pa.int64())})
        [(payload, rows, _)] = CODEC.encode(Train(batch=batch))
        staging.stage("q.in", token, number, rows, memoryview(payload))


def stage(staging: Staging, token: str, *chunks: list[int]) -> WholeAttempt:
    stage_chunks(staging, token, *chunks)
    whole = WholeAttempt(token=token, chunks=len(chunks), rows=sum(map(len, chunks)))
    staging.seal("q.in", whole)
    return whole


def send(staging: Staging, node: list[int], dies: DyingDisk | None = None) -> int:
    return deliver(staging, "q.in", SCHEMA, Port(node, dies), flush_rows=4)


def test_an_epoch_is_published_once_in_the_order_of_its_tasks() -> None:
    disk, node = DyingDisk(), []
    staging = opened(disk)
    a = stage(staging, token_of("w", 0, 0, FIELDS[0]), [1, 2], [3])
    b = stage(staging, token_of("w", 0, 1, FIELDS[1]), [4])
    assert staging.publish("q.in", "w", "o", 0, (a, b)) == ""
    again = stage(staging, token_of("w", 0, 0, FIELDS[2]), [1, 2, 3])
    assert "epoch 0 of 'w' was published before" in staging.publish("q.in", "w", "o", 0, (again,))
    assert send(staging, node) == 4
    assert node == [1, 2, 3, 4]
    assert not disk.groups, "what is delivered, or can't be published any more, is gone"
    assert send(staging, node) == 0
    empty = staging.publish("q.in", "w", "o", 7, ())
    assert empty == ""
    assert "the last one is 7" in staging.publish("q.in", "w", "o", 5, ())


def test_an_epoch_does_not_wait_until_the_one_before_is_durable() -> None:
    disk, node = DyingDisk(), []
    staging = opened(disk)

    class Slow(Port):
        def flush(self, timeout: str) -> None:
            raise LinkError("its checkpoint is far", code="link.timeout")

    port = Slow(node)
    for epoch in range(2):
        whole = stage(staging, token_of("w", epoch, 0, FIELDS[epoch]), [epoch])
        staging.publish("q.in", "w", "o", epoch, (whole,))
        assert deliver(staging, "q.in", SCHEMA, port) == 1
    assert (port.sent, node) == ([0, 1], [])
    assert staging.books.queue("q.in")[0].first == 0, "nothing is forgotten before it is durable"
    node.append(0)
    assert deliver(staging, "q.in", SCHEMA, port) == 0
    assert staging.books.queue("q.in")[0].first == 1
    node.append(1)
    assert deliver(staging, "q.in", SCHEMA, port) == 0
    assert not disk.groups


def test_an_abort_forgets_attempts_and_never_an_epoch() -> None:
    disk, node = DyingDisk(), []
    staging = opened(disk)
    dead = stage(staging, token_of("w", 0, 0, FIELDS[0]), [9])
    assert staging.abort("w", 0, [dead.token]) == ""
    assert not disk.groups
    with pytest.raises(LinkError, match="isn't staged") as caught:
        staging.publish("q.in", "w", "o", 0, (dead,))
    assert caught.value.code == "E_STAGE"
    whole = stage(staging, token_of("w", 0, 0, FIELDS[1]), [1])
    staging.publish("q.in", "w", "o", 0, (whole,))
    assert "is published, and stays so" in staging.abort("w", 0, [whole.token])
    send(staging, node)
    assert node == [1]


def test_half_an_abort_leaves_nothing_that_looks_whole() -> None:
    disk = DyingDisk()
    staging = opened(disk)
    whole = stage(staging, token_of("w", 0, 0, FIELDS[0]), [1], [2])
    disk.die_at, disk.end = disk.steps, "kept"
    with pytest.raises(DiedError):
        staging.abort("w", 0, [whole.token])
    staging = opened(disk)
    with pytest.raises(LinkError, match="isn't staged"):
        staging.publish("q.in", "w", "o", 0, (whole,))


def test_what_does_not_belong_together_is_refused_and_changes_nothing() -> None:
    disk = DyingDisk()
    staging = opened(disk)
    whole = stage(staging, token_of("w", 0, 0, FIELDS[0]), [1])
    before = dict(disk.groups)
    for writer, epoch, wholes, why in (
        ("other", 0, (whole,), "for another writer or epoch"),
        ("w", 1, (whole,), "for another writer or epoch"),
        ("w", 0, (whole, whole), "names an attempt twice"),
        ("w", 0, (WholeAttempt(token=whole.token, chunks=1, rows=2),), "was staged as"),
        ("w", 0, (WholeAttempt(token=token_of("w", 0, 1, FIELDS[0]), chunks=0, rows=0),), "isn't staged"),
    ):
        with pytest.raises(LinkError, match=why):
            staging.publish("q.in", writer, "o", epoch, wholes)
    with pytest.raises(LinkError, match="another writer than 'other'"):
        staging.abort("other", 0, [whole.token])
    half = token_of("w", 0, 0, FIELDS[5])
    staging.stage("q.in", half, 0, 1, b"rows")
    with pytest.raises(LinkError, match=r"chunk 1 of .* isn't here"):
        staging.seal("q.in", WholeAttempt(token=half, chunks=2, rows=2))
    assert before.items() <= disk.groups.items()
    staging.publish("q.in", "w", "o", 0, (whole,))
    for stream, origin, why in (("q.in", "p", "another checkpoint"), ("q.other", "o", "another stream")):
        with pytest.raises(LinkError, match=f"published epoch 0 of {why}") as caught:
            staging.publish(stream, "w", origin, 1, ())
        assert caught.value.code == "E_WRITER"


def test_an_attempt_may_not_know_its_epoch() -> None:
    disk, node = DyingDisk(), []
    staging = opened(disk)
    whole = stage(staging, token_of("w", None, 0, FIELDS[0]), [1])
    staging.publish("q.in", "w", "o", 3, (whole,))
    send(staging, node)
    assert node == [1]
    assert not disk.groups


def test_orphans_go_with_a_later_epoch_and_by_age() -> None:
    disk = DyingDisk()
    time = [0.0]
    staging = opened(disk, now=lambda: time[0], age_s=10)
    orphan = stage(staging, token_of("w", 0, 0, FIELDS[0]), [1])
    other = stage(staging, token_of("v", 0, 0, FIELDS[1]), [2])
    staging.publish("q.in", "w", "o", 1, (stage(staging, token_of("w", 1, 0, FIELDS[2]), [3]),))
    assert not any(name.startswith(orphan.token) for name in disk.groups)
    assert any(name.startswith(other.token) for name in disk.groups)
    time[0] = 11.0
    staging.collect()
    assert not any(name.startswith(other.token) for name in disk.groups)
    assert disk.groups, "what is published stays however old it is"


def test_a_full_gateway_refuses_until_rows_are_delivered() -> None:
    disk, node = DyingDisk(), []
    staging = opened(disk, bytes_max=700)
    whole = stage(staging, token_of("w", 0, 0, FIELDS[0]), list(range(40)))
    staging.publish("q.in", "w", "o", 0, (whole,))
    with pytest.raises(FullError, match="no node has taken yet"):
        stage(staging, token_of("w", 1, 0, FIELDS[1]), list(range(40)))
    send(staging, node)
    stage(staging, token_of("w", 1, 0, FIELDS[1]), list(range(40)))


def test_a_node_that_lost_rows_or_has_others_is_told() -> None:
    disk, node = DyingDisk(), []
    staging = opened(disk)
    staging.publish("q.in", "w", "o", 0, (stage(staging, token_of("w", 0, 0, FIELDS[0]), [1, 2]),))
    send(staging, node)
    with pytest.raises(DataError, match="wants row 1 of this gateway, and rows below 2") as lost:
        send(staging, [1])
    assert lost.value.code == "data.lost"
    with pytest.raises(DataError, match="has 3 rows of this gateway") as ahead:
        send(staging, [1, 2, 3])
    assert ahead.value.code == "data.ahead"


def published(disk: DyingDisk, epochs: int = 3) -> Staging:
    staging = opened(disk)
    for epoch in range(epochs):
        whole = stage(staging, token_of("w", epoch, 0, FIELDS[epoch]), [epoch])
        staging.publish("q.in", "w", "o", epoch, (whole,))
    return staging


def test_a_journal_of_any_size_is_read_again() -> None:
    disk = DyingDisk()
    large = "o" * (65 << 20)
    opened(disk).publish("q.in", "w", large, 4, ())
    for _ in range(2):
        known = opened(disk).books.writer("w")
        assert known is not None
        assert (known.epoch, known.origin == large) == (4, True)


@pytest.mark.parametrize("again", [False, True])
def test_a_damaged_journal_is_refused_and_left_as_it_is(again: bool) -> None:
    whole = DyingDisk()
    published(whole)
    if again:
        opened(whole)
    number, data = max(whole.logs), bytes(whole.logs[max(whole.logs)])
    [length] = [int.from_bytes(data[:4], "little") + 8] if again else [first_record_of_many(data)]
    for at in range(length):
        disk = DyingDisk()
        disk.groups, disk.logs = dict(whole.groups), {number: bytearray(data)}
        disk.logs[number][at] ^= 1
        with pytest.raises(StateError, match=f"disk:/{number} .* can't be told") as caught:
            opened(disk)
        assert caught.value.code == "state.corrupt"
        assert disk.groups == whole.groups, "nothing that was published is removed"
        assert list(disk.logs) == [number]
    lost = DyingDisk()
    lost.groups = dict(whole.groups)
    with pytest.raises(StateError, match="rows lie beside it"):
        opened(lost)


def test_a_journal_of_an_earlier_version_is_gone_on_with() -> None:
    disk, node = DyingDisk(), []
    token = token_of("w", 4, 0, FIELDS[0])
    stage(opened(disk), token, [1, 2])
    disk.logs = {7: bytearray()}
    for line in (
        ["balance", [["v", "q.in", "", 3, False]], [["q.in", 0, []]]],
        ["published", "q.in", "w", "o", 4, [[token, 1, 2]], False],
    ):
        data = msgspec.msgpack.encode(line)
        disk.logs[7] += len(data).to_bytes(4, "little") + crc32c(data).to_bytes(4, "little") + data
    staging = opened(disk)
    again = stage(staging, token_of("w", 4, 0, FIELDS[1]), [1, 2, 3])
    assert "was published before" in staging.publish("q.in", "w", "o", 4, (again,), run="r")
    assert "was published before" in staging.publish("q.in", "v", "", 3, (), run="r")
    send(opened(disk), node)
    assert node == [1, 2]


def first_record_of_many(data: bytes) -> int:
    """How long all are but the last, which may have been torn."""
    ends = [0]
    while ends[-1] < len(data):
        ends.append(ends[-1] + 8 + int.from_bytes(data[ends[-1] :][:4], "little"))
    return ends[-2]


def test_a_journal_that_is_long_is_not_written_anew_with_each_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging_module, "JOURNAL_BYTES", 1000)
    disk = DyingDisk()
    begun, log = [0], disk.append
    monkeypatch.setattr(disk, "append", lambda number, data: (begun.append(number), log(number, data)))
    published(disk, 60)
    assert len(disk.logs[max(disk.logs)]) > 2000, "the queue alone is larger than that"
    assert len(set(begun)) < 10


def test_an_attempt_is_sealed_with_the_rows_that_were_staged_and_no_others() -> None:
    disk, node = DyingDisk(), []
    staging = opened(disk)
    token = token_of("w", 0, 0, FIELDS[0])
    stage_chunks(staging, token, [1, 2, 3, 4, 5], [6])
    for again in (False, True):  # The gateway may be started anew between the two.
        staging = opened(disk) if again else staging
        for stream, chunks, rows in (("q.in", 2, 3), ("q.in", 2, 7), ("q.in", 1, 5), ("q.other", 2, 6)):
            with pytest.raises(LinkError, match="has 2 chunks of 6 rows for 'q.in'") as caught:
                staging.seal(stream, WholeAttempt(token=token, chunks=chunks, rows=rows))
            assert caught.value.code == "E_STAGE"
    whole = WholeAttempt(token=token, chunks=2, rows=6)
    staging.seal("q.in", whole)
    with pytest.raises(LinkError, match="is sealed, and has no chunk 2"):
        stage_chunks(staging, token, [1, 2, 3, 4, 5], [6], [7])
    staging.publish("q.in", "w", "o", 0, (whole,))
    later = stage(staging, token_of("w", 1, 0, FIELDS[1]), [8, 9])
    staging.publish("q.in", "w", "o", 1, (later,))
    send(staging, node)
    assert node == [1, 2, 3, 4, 5, 6, 8, 9]


RUNS = ("a" * 8, "b" * 8)
"""Two runs of a driver."""


def test_a_full_gateway_never_gives_up_a_whole_attempt_for_its_twin() -> None:
    disk, node = DyingDisk(), []
    staging = opened(disk, bytes_max=1000)
    values = list(range(40))
    whole = stage(staging, token_of("w", 0, 0, RUNS[0] + "1" * 8), values, values)
    twin = token_of("w", 0, 0, RUNS[0] + "2" * 8)
    with pytest.raises(FullError):
        stage(staging, twin, values)
    staging.publish("q.in", "w", "o", 0, (whole,))
    send(staging, node)
    assert node == values * 2


def test_a_full_gateway_gives_up_what_an_earlier_run_left_and_never_what_a_later_one_has() -> None:
    disk, node = DyingDisk(), []
    staging = opened(disk, bytes_max=1000)
    values = list(range(40))
    for task in range(2):
        stage(staging, token_of("w", 0, task, RUNS[0] + f"{task:08x}"), values)
    # The driver died; the next one has other tasks.
    whole = stage(staging, token_of("w", 0, 5, RUNS[1] + "1" * 8), values, values)
    for task in (5, 0):  # Of the first one a task runs on.
        with pytest.raises(FullError):
            stage(staging, token_of("w", 0, task, RUNS[0] + "9" * 8), values)
    staging.publish("q.in", "w", "o", 0, (whole,))
    send(staging, node)
    assert node == values * 2


def test_of_two_attempts_that_are_not_whole_the_later_one_goes_on() -> None:
    staging = opened(DyingDisk(), bytes_max=1000)
    values = list(range(40))
    first, second = (token_of("w", 0, 0, RUNS[0] + digit * 8) for digit in "12")
    stage_chunks(staging, first, values)
    stage(staging, second, values, values)
    with pytest.raises(LinkError, match=r"chunk 0 of .* isn't here") as caught:
        staging.stage("q.in", first, 1, 1, b"rows")
    assert caught.value.code == "E_STAGE", "it is told at once, not when it has staged all"


def test_an_epoch_that_never_fits_is_told_what_to_do() -> None:
    staging = opened(DyingDisk(), bytes_max=1000)
    values = list(range(40))
    stage(staging, token_of("w", 0, 0, RUNS[0] + "1" * 8), values)
    with pytest.raises(LinkError, match=r"the epoch takes .* may hold 1000 B in all") as caught:
        stage(staging, token_of("w", 0, 1, RUNS[0] + "2" * 8), values, values)
    assert caught.value.code == "E_LIMIT"
    assert "maxRowsPerBatch" in caught.value.hint


class Fault(Exception):
    pass


def job(disk: DyingDisk, node: list[int], done: set[int]) -> None:
    """Three epochs of a writer, each of two tasks, as a driver goes through them after each death.

    ``done`` is Spark's commit log: which epochs it saw through."""
    attempts = job.attempts  # type: ignore[attr-defined]
    staging = opened(disk, bytes_max=1 << 16)
    for epoch in range(3):
        if epoch in done:
            continue
        wholes = []
        for task in range(2):
            stage(
                staging, token_of("w", epoch, task, f"{next(attempts):016x}"), [777]
            )  # An attempt that died.
            values = [100 * epoch + 10 * task + n for n in range(3)]
            wholes.append(
                stage(staging, token_of("w", epoch, task, f"{next(attempts):016x}"), values[:2], values[2:])
            )
        try:
            staging.publish("q.in", "w", "o", epoch, tuple(wholes))
        except StateError as error:
            # As Spark does: the epoch failed, abort, the query ends and is started again.
            staging.abort("w", epoch, [each.token for each in wholes])
            raise Fault from error
        done.add(epoch)
        if epoch != 1:
            send(staging, node, disk)
    send(staging, node, disk)
    assert not [name for name in disk.groups if not name.startswith("x")], "nothing is left of what is done"


EXPECTED = [100 * epoch + 10 * task + n for epoch in range(3) for task in range(2) for n in range(3)]


def runs(disk: DyingDisk, node: list[int]) -> int:
    """The job, with as many lives as it needs; how many steps it took without a death."""
    done: set[int] = set()
    job.attempts = itertools.count()  # type: ignore[attr-defined]
    for _ in range(4):
        try:
            job(disk, node, done)
            return disk.steps
        except DiedError:
            disk.power_fails()
        except (StateError, Fault):
            pass
    raise AssertionError("it never ended")


def steps_of_a_job() -> int:
    node: list[int] = []
    count = runs(DyingDisk(), node)
    assert node == EXPECTED
    return count


@pytest.mark.parametrize("end", ENDS)
def test_it_dies_at_every_step(end: str) -> None:
    for step in range(steps_of_a_job()):
        disk, node = DyingDisk(), []
        disk.die_at, disk.end = step, end
        runs(disk, node)
        assert node == EXPECTED, (step, end)


@pytest.mark.parametrize("end", ENDS)
def test_the_disk_fails_at_every_step_and_the_gateway_goes_on(end: str) -> None:
    for step in range(steps_of_a_job()):
        disk, node = DyingDisk(), []
        disk.die_at, disk.end, disk.fails = step, end, True
        runs(disk, node)
        assert node == EXPECTED, (step, end)


def test_two_deaths() -> None:
    steps = steps_of_a_job()
    for first, second in itertools.product(range(0, steps, 3), range(0, steps, 5)):
        disk, node = DyingDisk(), []
        disk.die_at, disk.end = first, ENDS[first % 4]
        done: set[int] = set()
        job.attempts = itertools.count()  # type: ignore[attr-defined]
        for life in range(4):
            try:
                job(disk, node, done)
                break
            except DiedError:
                disk.power_fails()
                if life == 0:
                    disk.die_at, disk.end = disk.steps + second, ENDS[second % 4]
        assert node == EXPECTED, (first, second)
