"""What a gateway keeps, for whom, and how it forgets."""

from __future__ import annotations

import json
import threading
import time

import pyarrow as pa
import pytest
from click.testing import CliRunner

import medusa as md
from medusa.cli.main import main
from medusa.errors import ConfigError, FullError, LinkError
from medusa.runtime.store.folder_store import FolderStore
from medusa.spark.data_source_reader import BatchReader, StreamReader, columns_of
from medusa.spark.data_source_writer import StreamWriter
from medusa.spark.exchange import gateway as gateways
from medusa.spark.exchange import requests as r
from medusa.spark.exchange.gateway import Gateway
from medusa.spark.exchange.nodes import FederationNodes
from medusa.spark.exchange.requests import token_of
from medusa.spark.exchange.staging import Staging
from tests.gateway.dying_disk import DyingDisk, Logs
from tests.gateway.here import named, options, running, values
from tests.gateway.test_losses import Stream, reader_of, with_stream
from tests.system.nodes import until

WAIT = "20s"


def said(gateway, *arguments):
    done = CliRunner().invoke(main, ["gateway", *arguments, "--gateway", gateway.address])
    return done.exit_code, done.stdout, done.stderr


def write(gateway, epoch, values):
    writer = StreamWriter(options(gateway, "q.rows"))
    batch = pa.record_batch({"v": pa.array(values, pa.int64())})
    return writer.publish([writer.task([batch], query="id", epoch=epoch, partition=0)], epoch)


def test_who_reads_and_writes_is_listed_and_forgotten(node, tmp_path):
    fed, address = node
    with md.spark.gateway(address, tmp_path / "g") as gateway:
        assert "nobody reads or writes here" in said(gateway, "status")[1]
        assert write(gateway, 0, [1, 2, 3])
        gateway.flush(WAIT)
        reader = BatchReader(options(gateway, reader="report"))
        until(lambda: reader.parts() and reader.parts()[-1].hi == 3, what="the rows")
        code, text, _ = said(gateway, "status", "--json")
        told = json.loads(text)
        [line] = told["readers"]
        assert (code, line["stream"], line["reader"]) == (0, "q.out", "report")
        assert (line["earliest"], line["latest"], line["read"], line["full"]) == (0, 3, 0, False)
        assert told["sources"] == [{"stream": "q.rows", "published": 3, "waiting": 0, "why": ""}]
        assert told["writers"] == [{"writer": "query/id", "stream": "q.rows", "epoch": 0}]
        assert (told["staged_bytes"], told["unpublished_bytes"]) == (0, 0)
        shown = said(gateway, "status")[1]
        assert "report" in shown
        assert "query/id" in shown

        code, _, error = said(gateway, "forget", "q.out")
        assert code == 1
        assert "nobody reads 'q.out' as 'spark' here" in error
        assert "it is read as report" in error
        code, _, error = said(gateway, "forget", "q.outt")
        assert (code, "did you mean 'q.out'?" in error) == (1, True)
        assert said(gateway, "forget", "q.out", "--reader", "report")[:2] == (
            0,
            "reader report of q.out is forgotten\n",
        )
        assert not gateway.status()["readers"]
        assert not named(fed), "nor at the node"
        assert said(gateway, "forget", "q.out", "--source", "--reader", "report")[0] == 1


def test_a_source_that_was_deployed_anew_is_written_to_once_it_is_forgotten(node, tmp_path):
    fed, address = node
    with md.spark.gateway(address, tmp_path / "g", report=lambda line: None) as gateway:
        assert write(gateway, 0, [1, 2])
        gateway.flush(WAIT)
        fed.undeploy("q")
        fed.deploy(values())
        assert write(gateway, 1, [3])

        def why():
            return gateway.status()["sources"]["q.rows"]["why"]

        until(lambda: "rows below 2 were durable there" in why() and "forget --source" in why(), what="why")
        code, _, error = said(gateway, "forget", "q.rows", "--source")
        assert (code, "1 rows wait for 'q.rows', and nobody else has them" in error) == (1, True)
        assert gateway.status()["sources"]["q.rows"]["waiting"] == 1
        assert said(gateway, "forget", "q.rows", "--source", "--drop-waiting")[0] == 0
        assert gateway.status()["staged_bytes"] == 0
        assert said(gateway, "forget", "q.rows", "--source")[0] == 1
        assert not write(gateway, 1, [3]), "its epochs are remembered"
        assert write(gateway, 2, [4, 5])
        gateway.flush(WAIT)
        with fed.subscribe("q.out", from_="oldest") as trains:
            assert trains.next(WAIT).batch["v"].to_pylist() == [4, 5]
    with md.spark.gateway(address, tmp_path / "g") as gateway:
        assert gateway.status()["sources"]["q.rows"]["published"] == 2, "it is so on disk"


def test_a_source_whose_node_is_away_is_not_half_forgotten(node, tmp_path):
    with md.spark.gateway(node[1], tmp_path / "g") as gateway:
        write(gateway, 0, [1, 2])
        gateway.flush(WAIT)
    nodes = FederationNodes(f"ipc://{tmp_path}/nobody", "spark", timeout="100ms")
    with Gateway(nodes, "spark", f"{tmp_path}/g", listen="tcp://127.0.0.1:*", report=str) as gateway:
        with pytest.raises(LinkError, match="'q.rows' is not forgotten: waited"):
            gateway.forget_source("q.rows")
        assert gateway.status()["sources"]["q.rows"]["published"] == 2


def test_a_node_that_is_not_there_is_told_though_nobody_asks(node, tmp_path):
    told: list[str] = []
    away = f"ipc://{tmp_path}/nobody"
    with md.spark.gateway(away, tmp_path / "g", report=told.append) as gateway:
        until(lambda: told, what="a warning")
        assert told[0].startswith(f"node {away}: ")
        assert "the node doesn't answer: " in said(gateway, "status")[1]
        assert len(told) == 1
    with md.spark.gateway(node[1], tmp_path / "h", report=told.append) as gateway:
        until(lambda: not gateway.status()["node_why"], what="the node answers")
        assert "doesn't answer" not in said(gateway, "status")[1]
    assert len(told) == 1


def test_it_closes_while_it_waits_for_a_node(tmp_path):
    """Each of its three waits would take ten minutes."""
    with md.spark.gateway(f"ipc://{tmp_path}/nobody", tmp_path / "g", report=str) as gateway:
        for reader in ("a", "b"):
            with pytest.raises(LinkError, match="can't be read yet"):
                StreamReader(options(gateway, reader=reader, timeout="1s")).first_offset()
    nodes = FederationNodes(f"ipc://{tmp_path}/nobody", "spark", timeout="600s")
    gateway = Gateway(nodes, "spark", f"{tmp_path}/g", listen="tcp://127.0.0.1:*", report=str)
    assert len(gateway.status()["readers"]) == 2
    began_s = time.monotonic()
    gateway.close()
    assert time.monotonic() - began_s < 60


def staged(disk):
    return Staging(disk, Logs(disk), bytes_max=1000, now_s=lambda: 0.0, age_s=100.0)


def test_what_was_staged_before_a_restart_counts(tmp_path):
    disk = DyingDisk()
    before = staged(disk)
    token = token_of("w", 0, 0, "0" * 16)
    before.stage("q.in", token, 0, 1, memoryview(bytes(900)))
    before.seal("q.in", r.WholeAttempt(token=token, chunks=1, rows=1))
    after = staged(disk)
    assert after.nbytes == before.nbytes == 900
    assert after.unpublished_bytes == 900
    with pytest.raises(FullError):
        after.stage("q.in", token_of("v", 0, 1, "1" * 16), 0, 1, memoryview(bytes(200)))
    after.publish("q.in", "w", "o", 0, (r.WholeAttempt(token=token, chunks=1, rows=1),))
    assert (after.nbytes, after.unpublished_bytes) == (900, 0)
    after.delivered("q.in", 1)
    assert after.nbytes == 0
    folder = FolderStore(tmp_path / "s")
    folder.write("g", {"rows": bytes(17)})
    assert (folder.size("g", "rows"), folder.size("g", "other")) == (17, 0)


def test_an_attempt_of_a_dead_driver_does_not_keep_the_next_one_out():
    disk = DyingDisk()
    first = staged(disk)
    dead, other = token_of("w", 3, 0, "0" * 16), token_of("w", 3, 1, "1" * 16)
    first.stage("q.in", dead, 0, 1, memoryview(bytes(600)))
    again = staged(disk)
    again.stage("q.in", other, 0, 1, memoryview(bytes(300)))
    token = token_of("w", 3, 0, "2" * 16)
    again.stage("q.in", token, 0, 1, memoryview(bytes(600)))
    assert again.nbytes == 900
    with pytest.raises(LinkError, match="isn't here"):
        again.seal("q.in", r.WholeAttempt(token=dead, chunks=1, rows=1))


def test_a_source_that_is_finished_closes_its_windows(tmp_path):
    q = md.Query("w")
    rows = q.source("rows", {"ts": "int64"}, time="ts", unit="us", slack="1s")
    q.sink("out", rows.window("10us").aggregate(n=md.count()))
    ended = "it takes no more rows from here"

    def task(gateway, epoch):
        writer = StreamWriter(options(gateway, "w.rows"))
        batch = pa.record_batch({"ts": [1, 2, 30]})
        return writer.publish([writer.task([batch], query="id", epoch=epoch, partition=0)], epoch)

    with running(tmp_path, q) as (fed, address):
        with md.spark.gateway(address, tmp_path / "g") as gateway:
            assert task(gateway, 0)
            code, text, _ = said(gateway, "finish", "w.rows")
            assert (code, text) == (0, "source w.rows is finished\n")
            gateway.finish("w.rows")
            with fed.subscribe("w.out", from_="oldest", timeout=WAIT) as trains:
                assert trains.table()["n"].to_pylist() == [2, 1]
            with pytest.raises(LinkError, match=ended):
                task(gateway, 1)
            code, _, error = said(gateway, "finish", "w.rowss")
            assert (code, "w.rowss" in error) == (1, True)
        with md.spark.gateway(address, tmp_path / "g") as gateway:
            gateway.finish("w.rows")
            with pytest.raises(LinkError, match=ended):
                task(gateway, 1)
            assert gateway.status()["sources"]["w.rows"] == {"published": 3, "waiting": 0, "why": ""}


def test_who_only_looks_leaves_nothing_and_a_batch_read_little(node, tmp_path, monkeypatch):
    fed, address = node
    monkeypatch.setattr(gateways, "EXPIRE_EVERY_S", 0.0)
    with md.spark.gateway(address, tmp_path / "g") as gateway:
        assert [field.name for field in columns_of(options(gateway))] == ["v"]
        assert not gateway.status()["readers"]
        assert not named(fed)
        gateway.wait("q.out", 0, "begun", WAIT)
        assert named(fed) == ["begun"]
        gateway.forget("q.out", "begun")
        assert write(gateway, 0, [1, 2])
        gateway.wait("q.out", 2, "once", WAIT)
        assert BatchReader(options(gateway, reader="once")).parts()
        with pytest.raises(LinkError, match=r"q\.outt"):
            gateway.wait("q.outt", 2, "once", WAIT)
        BatchReader(options(gateway, reader="both")).parts()
        StreamReader(options(gateway, reader="both")).first_offset()
        assert columns_of(options(gateway)), "of one that is being read"
    with md.spark.gateway(address, tmp_path / "g", keep_readers="1ms") as gateway:
        until(lambda: [each["reader"] for each in gateway.status()["readers"]] == ["both"], what="one")
        until(lambda: named(fed) == ["both"], what="nothing at the node")
        BatchReader(options(gateway, reader="both")).parts()
        gateway.forget("q.out", "both")
    with pytest.raises(ConfigError, match="keep_readers"):
        md.spark.gateway(address, tmp_path / "g", keep_readers="soon")


class Held(Stream):
    """It can't be ended before ``go``: neither what reads, nor the name at the node."""

    def __init__(self, *gives) -> None:
        super().__init__(*gives)
        self.reads, self.names, self.forgets = threading.Event(), threading.Event(), threading.Event()
        self.reads.set()

    def next(self, timeout):
        self.reads.wait(60)
        return super().next(timeout)

    def forget(self, stream, reader):
        self.forgets.set()
        self.names.wait(60)


def test_who_opens_a_reader_while_it_is_forgotten_waits_until_it_is(tmp_path):
    stream = Held((0, [0, 1]))
    with with_stream(tmp_path, stream) as gateway:
        before = reader_of(gateway).first_offset()
        forgetting = threading.Thread(target=gateway.forget, args=("q.out",))
        forgetting.start()
        assert stream.forgets.wait(60)
        with pytest.raises(LinkError, match="'q.out' of 'spark' is being forgotten"):
            reader_of(gateway, timeout="200ms").first_offset()
        with pytest.raises(LinkError, match="'q.out' of 'spark' is being forgotten"):
            gateway.wait("q.out", 1, timeout="1ms")
        stream.names.set()
        forgetting.join()
        after = reader_of(gateway).first_offset()
        assert before["life"] != after["life"], "at the node it is another one too"


def test_who_opens_a_reader_whose_time_is_over_waits_until_it_is_forgotten(tmp_path, monkeypatch):
    stream = Held((0, [0, 1]))
    monkeypatch.setattr(gateways, "EXPIRE_EVERY_S", 1e9)
    with with_stream(tmp_path, stream, keep_s=0.0) as gateway:
        gateway.wait("q.out", 2)
        stream.reads.clear()
        stream.names.set()
        monkeypatch.setattr(gateways, "EXPIRE_EVERY_S", 0.0)
        until(lambda: gateway._inlets._expiring, what="it is over")
        monkeypatch.setattr(gateways, "EXPIRE_EVERY_S", 1e9)
        with pytest.raises(LinkError, match="'q.out' of 'spark' is being forgotten"):
            reader_of(gateway, timeout="200ms").first_offset()
        stream.reads.set()
        assert reader_of(gateway).first_offset(), "one that is new"
