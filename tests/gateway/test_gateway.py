"""A gateway, a node and their sockets, all in this process: what the fakes of the other tests stand for."""

from __future__ import annotations

import pyarrow as pa
import pytest

import medusa as md
from medusa.errors import ConfigError, DataError, LinkError, MedusaError, StateError
from medusa.spark.data_source_reader import BatchReader, StreamReader, columns_of
from medusa.spark.data_source_writer import StreamWriter, TableWriter
from medusa.spark.exchange.caller import GatewayConnection
from medusa.spark.exchange.command import opened
from medusa.spark.exchange.registry import _folder_of
from medusa.spark.exchange.requests import Listing
from medusa.spark.options import options_from
from tests.gateway.here import named, options, running, timed
from tests.system.nodes import until

WAIT = "20s"


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    with running(tmp_path_factory.mktemp("n"), timed()) as (fed, address):
        fed.subscribe("q.out", from_="oldest", durable="keeper").close()  # Rows stay for each test.
        fed.publish("q.rows", {"ts": [1, 2, 3, 0], "v": [10, 20, 30, 40]})
        fed.flush(WAIT)
        yield fed, address


def rows_of(reader, parts):
    return [row for part in parts for batch in reader.rows(part) for row in batch.to_pylist()]


def all_rows(reader, count):
    """Once so many are there."""

    def there():
        parts = reader.parts()
        return parts if parts and parts[-1].hi >= count else None

    return rows_of(reader, until(there, what="the rows"))


def test_a_stream_comes_with_its_numbers_and_late_marks(node, tmp_path):
    with md.spark.gateway(node[1], tmp_path / "g") as gateway:
        read = options(gateway, meta="true", boundary="true")
        assert [field.name for field in columns_of(read)] == ["ts", "v", "_seq", "_late", "_boundary"]
        found = all_rows(BatchReader(read), 4)
        assert [(row["v"], row["_seq"], row["_late"]) for row in found] == [
            (10, 0, False),
            (20, 1, False),
            (30, 2, False),
            (40, 3, True),
        ]
        assert all(row["_boundary"] <= row["ts"] for row in found if not row["_late"])
        [reader] = gateway.status()["readers"]
        assert (reader["earliest"], reader["latest"], reader["why"]) == (0, 4, "")
        gateway.forget("q.out")
        with pytest.raises(LinkError, match="nobody reads 'q.out'"):
            gateway.forget("q.out")
    assert named(node[0]) == ["keeper"]


def test_it_goes_on_from_its_folder_and_the_caller_waits_for_it(node, tmp_path):
    with md.spark.gateway(node[1], tmp_path / "g") as gateway:
        address = gateway.address
        read = options(gateway, reader="again")
        before = all_rows(BatchReader(read), 4)
        reader = StreamReader(read)
        start = reader.first_offset()
        with pytest.raises(StateError, match="in use by another"):
            md.spark.gateway(node[1], tmp_path / "g")
    with md.spark.gateway(node[1], tmp_path / "g", listen=address) as gateway:
        end = reader.next_offset(start, 3)  # By the old connection, which has to be made again.
        assert end == {"stream": "q.out", "row": 3, "life": start["life"]}
        assert rows_of(reader, reader.parts(start, end)) == before[:3]
        reader.committed(end)
        gateway.forget("q.out", "again")


def test_what_is_here_is_read_without_the_node(node, tmp_path):
    with md.spark.gateway(node[1], tmp_path / "g") as gateway:
        before = all_rows(BatchReader(options(gateway)), 4)
    with md.spark.gateway(f"ipc://{tmp_path}/nobody", tmp_path / "g", report=print) as gateway:
        assert all_rows(BatchReader(options(gateway)), 4) == before
    with md.spark.gateway(node[1], tmp_path / "g") as gateway:
        gateway.forget("q.out")


def test_a_segment_that_was_just_being_begun_is_not_in_the_way(node, tmp_path):
    name = _folder_of("q.out", "torn")
    for folder in ("g", "g/rows", f"g/rows/{name}"):
        (tmp_path / folder).mkdir()
    (tmp_path / f"g/rows/{name}/{0:018d}.arrows").write_bytes(b"half")
    with md.spark.gateway(node[1], tmp_path / "g") as gateway:
        assert len(all_rows(BatchReader(options(gateway, reader="torn")), 4)) == 4
        gateway.forget("q.out", "torn")


def test_wrong_names_are_refused_soon_and_leave_nothing(node, tmp_path):
    with md.spark.gateway(node[1], tmp_path / "g") as gateway:
        for asks in (columns_of, lambda wrong: StreamReader(wrong).first_offset()):
            with pytest.raises(
                LinkError, match=r"no stream .*'q\.outt' \(did you mean 'q\.out'\?\)"
            ) as caught:
                asks(options(gateway, "q.outt"))
            assert caught.value.code == "E_STREAM"
        assert not gateway.status()["readers"]
        batch = pa.record_batch({"v": [1]})
        with pytest.raises(LinkError, match=r"q\.rowss") as caught:
            TableWriter(options(gateway, "q.rowss")).task([batch], partition=0)
        assert caught.value.code == "E_STREAM"
        assert not gateway.status()["sources"]


def test_rows_that_do_not_fit_never_get_into_an_epoch(node, tmp_path):
    with md.spark.gateway(node[1], tmp_path / "g") as gateway:
        writer = TableWriter(options(gateway, "q.rows"))
        for columns, why in (
            ({"ts": [1]}, "column 'v' is missing"),
            ({"ts": [1], "v": [1], "w": [1]}, "no column 'w'"),
            ({"ts": [1], "v": [1.5]}, "expected int64 for int64, came double"),
            ({"ts": pa.array([None], pa.int64()), "v": [1]}, "null"),
        ):
            with pytest.raises(DataError, match=why):
                writer.task([pa.record_batch(columns)], partition=0)
        assert gateway.status()["sources"]["q.rows"]["published"] == 0


def test_what_spark_writes_is_in_the_stream_once(node, tmp_path):
    fed, address = node
    with md.spark.gateway(address, tmp_path / "g", name="writes") as gateway:
        writer = StreamWriter(options(gateway, "q.rows"))
        with fed.subscribe("q.out", from_="now") as trains:
            for epoch in range(3):
                batch = pa.record_batch(
                    {"v": pa.array([epoch, 100 + epoch], pa.int32()), "ts": [9 + epoch, 10 + epoch]}
                )
                tasks = [writer.task([batch], query="id", epoch=epoch, partition=n) for n in range(2)]
                assert writer.publish(tasks, epoch)
                assert not writer.publish(tasks, epoch)
                writer.give_up(tasks, epoch)
            gateway.flush(WAIT)
            found = []
            while len(found) < 12:
                found += trains.next(WAIT).batch["v"].to_pylist()
        assert found == [v for epoch in range(3) for v in [epoch, 100 + epoch] * 2]
        status = gateway.status()
        assert status["sources"]["q.rows"] == {"published": 12, "waiting": 0, "why": ""}
        assert status["staged_bytes"] == 0


def test_each_chunk_is_synced_so_there_are_few(node, tmp_path):
    with md.spark.gateway(node[1], tmp_path / "g", name="chunks") as gateway:
        writer = TableWriter(options(gateway, "q.rows"))
        table = pa.table({"ts": range(400_000), "v": range(400_000)})  # 6.4 MB
        for rows in (1_000, 65_536, 400_000):
            staged = writer.task(table.to_batches(max_chunksize=rows), partition=0)
            assert (staged.chunks <= 3, staged.rows) == (True, 400_000)
            writer.give_up([staged])


def test_only_who_has_a_key_may_ask(node, tmp_path):
    from medusa.cli.main import main

    for kind, name in (("node", "gateway"), ("client", "spark"), ("client", "stranger")):
        with pytest.raises(SystemExit, match="0"):
            main(["keygen", kind, str(tmp_path / f"{name}.key")])
    keys = {"gateway_key": tmp_path / "gateway.key", "clients": [tmp_path / "spark.pub"]}
    with md.spark.gateway(node[1], tmp_path / "g", **keys) as gateway:
        server = str(tmp_path / "gateway.pub")
        read = options(gateway, key=str(tmp_path / "spark.key"), serverKey=server)
        assert len(columns_of(read)) == 2
        with pytest.raises(LinkError, match="doesn't admit this key"):
            columns_of(options(gateway, key=str(tmp_path / "stranger.key"), serverKey=server))
    with pytest.raises(ConfigError, match="go together"):
        md.spark.gateway(node[1], tmp_path / "g", gateway_key=tmp_path / "gateway.key")


def test_a_node_is_no_gateway(node):
    read = options_from({"endpoint": node[1], "stream": "q.out", "timeout": "1s"})
    with pytest.raises(LinkError, match="something listens there: is it a node, or busy") as caught:
        columns_of(read)
    assert caught.value.code == "link.timeout"


def test_nobody_there(tmp_path):
    read = options_from({"endpoint": f"ipc://{tmp_path}/none", "stream": "q.out", "timeout": "300ms"})
    with pytest.raises(LinkError, match="didn't answer `shape` in time") as caught:
        columns_of(read)
    assert caught.value.code == "link.timeout"
    assert "medusa gateway" in caught.value.hint


def test_strangers_bytes_end_their_connection_only(node, tmp_path):
    told: list[str] = []
    with md.spark.gateway(node[1], tmp_path / "g", report=told.append) as gateway:
        stranger = GatewayConnection(options(gateway).endpoint)
        try:
            stranger.ask(Listing(number=0))  # What is sent before the connection stands is lost.
            stranger._transport.send("gateway", [b"no message"])
            until(lambda: any("a caller was cut off" in line for line in told), what="it is cut off")
            assert len(columns_of(options(gateway))) == 2
        finally:
            stranger.close()


def test_a_configuration(node, tmp_path):
    path = tmp_path / "gateway.toml"
    good = f'name = "g1"\nnode = "{node[1]}"\nlisten = "tcp://127.0.0.1:*"\ndata = "g"\n'
    path.write_text(good + '[limits]\nspool = "64 MiB"\n')
    with opened(path) as gateway:
        assert gateway.name == "g1"
        assert (tmp_path / "g" / "staged").is_dir()
    for text, why in (
        (good + "[limits]\nspol = 1\n", "line 6: limits.spol: unknown field 'spol' .*did you mean 'spool'"),
        (good + 'lisen = "x"\n', "line 5: lisen: unknown field"),
        (good.replace("data", "date"), "unknown field 'date'"),
        (good + '[keys]\ngateway = "g.key"\n[clients.a]\nkey = 7\n', "expected a file or a key, got 7"),
        (good.replace("g1", "G 1"), "'G 1' is no name"),
        (good.replace(node[1], "x"), "line 2: node: 'x' is no address"),
        (
            good.replace(node[1], "tcp://192.0.2.1:5555"),
            "node: '192.0.2.1' is not an address of this",
        ),
        (good.replace("127.0.0.1", "0.0.0.0"), "line 3: listen: '0.0.0.0' is not an address of this machine"),
        (good + '[limits]\nspool = "lots"\n', "line 6: limits.spool: 'lots' is no number of bytes"),
        (good + '[limits]\nkeep_staged = "soon"\n', "line 6: limits.keep_staged: 'soon' is no duration"),
        (good + '[keys]\ngateway = "a.key"\n', r"keys: \[clients.NAME\] is missing"),
        (good + '[clients.a]\nkey = "a.pub"\n', r"clients: \[keys\] gateway is missing"),
        (good + '[keys]\nclient = "a.key"\n', "line 6: keys.client: node is missing"),
        (good + '[client.a]\nkey = "a.pub"\n', "unknown field 'client' .*did you mean 'clients'"),
    ):
        path.write_text(text)
        with pytest.raises(ConfigError, match=why):
            opened(path)
    for more, why in (
        ('client = "no.key"\nnode = "no.pub"\n', r"no\.key can't be read"),
        ('gateway = "no.key"\n[clients.a]\nkey = "no.pub"\n', r"no\.key can't be read"),
    ):
        path.write_text(good + "[keys]\n" + more)
        with pytest.raises(MedusaError, match=why):
            opened(path)
