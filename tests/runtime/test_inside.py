"""A node inside a program: started, read, closed, restarted; and whatever may come between."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import threading
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest

import medusa as md
from medusa.runtime.embedded_node import node_thread
from medusa.runtime.keys.key_files import CurveKey, read_public, write_key
from medusa.runtime.node.loop import NodeLoop

SCHEMA = {"ts": "int64", "v": "int64"}
DEADLINE_S = 240


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("i")  # The path of a socket has to be short.


@pytest.fixture
def deadline() -> Any:
    def late(number: int, frame: Any) -> None:
        raise TimeoutError(f"nothing for {DEADLINE_S} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(DEADLINE_S)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def fields(folder: Path, name: str = "a", **more: Any) -> dict[str, Any]:
    return {"name": name, "listen": f"ipc://{folder}/{name}", "data": folder / f"{name}.data", **more}


def query(name: str = "q") -> md.Query:
    """Sums over windows: state that a restart has to bring back."""
    q = md.Query(name)
    rows = q.source("rows", SCHEMA, time="ts", unit="us")
    q.sink("out", rows.window("10us").aggregate(total=md.sum("v")))
    return q


def sums(trains: Any, windows: int) -> list[int]:
    found: list[int] = []
    while len(found) < windows:
        train = trains.next("30s")
        assert train is not None
        found += train.batch.column("total").to_pylist()
    return found


def threads() -> set[str]:
    """Of nodes, as long as they live."""
    names = {each.name for each in threading.enumerate() if each.is_alive()}
    return {each for each in names if each.startswith(("medusa-node", "medusa-engine", "medusa-disk"))}


def test_it_runs_goes_on_where_it_stopped_and_leaves_nothing(folder: Path) -> None:
    given = fields(folder, limits={"checkpoint_every": "10min"})
    with md.node(given) as node:
        assert (node.name, node.address, node.alive) == ("a", f"ipc://{folder}/a", True)
        assert f"a, ipc://{folder}/a" in repr(node)
        fed = node.connect("30s")
        fed.deploy(query())
        fed.publish("q.rows", {"ts": [1, 2, 11], "v": [1, 2, 4]})
        until_taken(node, 3)
    assert not node.alive
    assert node.failed is None
    assert threads() == set()
    node.close()
    with md.node(given) as node, fed:
        fed.publish("q.rows", {"ts": [12, 21, 31], "v": [8, 16, 32]})
        fed.finish("q.rows")
        assert fed.subscribe("q.out", from_="oldest").table("30s")["total"].to_pylist() == [3, 12, 16, 32]
        assert node.status()["rows_in"] == 3
        fed.close()


def until_taken(node: md.Node, rows: int) -> None:
    while node.status()["rows_in"] < rows:
        pass


def test_a_file_and_a_free_port(folder: Path) -> None:
    config = folder / "a.toml"
    config.write_text('name = "a"\nlisten = "tcp://127.0.0.1:*"\ndata = "state"\n')
    with md.node(config) as node:
        port = int(node.address.rpartition(":")[2])
        assert port > 0
        with md.connect(node.address) as fed:
            assert fed.node == "a"
            assert fed.status()["node"] == node.status()["node"] == "a"
        assert (folder / "state" / "lock").exists()


def test_relative_paths_of_fields_are_relative_to_the_working_directory(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    with md.node(fields(folder) | {"data": "here"}):
        assert (folder / "here" / "lock").exists()


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"name": "a", "listen": "tcp://127.0.0.1:*"}, "config: data is missing"),
        ({"nmae": "a"}, "config: nmae: unknown field 'nmae' (did you mean 'name'?)"),
        ({"name": 3}, "config: name: expected text, got 3"),
        ({3: "a"}, "config: 3 is no name of a field"),
        ({"limits": {4: 1}}, "config: limits: 4 is no name of a field"),
        (7, "a node's configuration is a file or a dict, came int"),
        ("no/such.toml", "no/such.toml can't be read: No such file"),
    ],
)
def test_a_wrong_configuration_is_named_and_nothing_runs(given: Any, says: str) -> None:
    with pytest.raises(md.MedusaError) as caught, md.node(given):
        pass
    assert says in str(caught.value)
    assert threads() == set()


def test_tables_in_tables_without_end_are_refused() -> None:
    given: dict[str, Any] = {"name": "a"}
    given["peers"] = given
    with pytest.raises(md.MedusaError, match="too many tables"):
        md.node(given).start()


def test_what_cannot_be_had_is_said_by_start(folder: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(md.LinkError, match="Address already in use"):
            md.node(fields(folder) | {"listen": address}).start()
    with md.node(fields(folder)), pytest.raises(md.StateError, match="is in use by another"):
        md.node(fields(folder) | {"listen": "tcp://127.0.0.1:*"}).start()
    assert threads() == set()


def test_a_node_is_started_once(folder: Path) -> None:
    node = md.node(fields(folder))
    for call in (node.status, node.connect, lambda: node.address):
        with pytest.raises(md.StateError, match="was not started"):
            call()
    with node:
        with pytest.raises(md.StateError, match="was started, or closed, before"):
            node.start()
        assert node.alive
    with pytest.raises(md.StateError, match="was started, or closed, before"):
        node.start()
    with pytest.raises(md.StateError, match="was closed"):
        node.status()
    never = md.node(fields(folder))
    never.close()
    with pytest.raises(md.StateError, match="was started, or closed, before"):
        never.start()


def test_two_nodes_of_one_program_share_a_query(folder: Path) -> None:
    """In another thread than the main one, too."""
    a = fields(folder, "a", peers={"b": f"ipc://{folder}/b"})
    b = fields(folder, "b", peers={"a": f"ipc://{folder}/a"})
    found: list[list[int]] = []

    def program() -> None:
        with md.node(a) as first, md.node(b) as second, first.connect("30s") as fed:
            fed.deploy(query(), at={"a": ["rows"], "b": [query().graph.boxes[1].id]})
            fed.publish("q.rows", {"ts": [1, 11], "v": [5, 6]})
            fed.finish("q.rows")
            with second.connect("30s") as other, other.subscribe("q.out", from_="oldest") as trains:
                found.append(sums(trains, 2))
            fed.flush()

    thread = threading.Thread(target=program)
    thread.start()
    thread.join(DEADLINE_S)
    assert found == [[5, 6]]
    assert threads() == set()


def test_functions_of_the_program_are_there(folder: Path) -> None:
    @md.register("inside.twice")
    def twice(batch: Any) -> Any:
        return batch.set_column(1, "v", pc.multiply(batch.column("v"), 2))

    q = md.Query("q")
    q.sink("out", q.source("rows", SCHEMA, time="ts", unit="us").apply(twice, SCHEMA))
    with md.node(fields(folder)) as node, node.connect("60s") as fed:
        fed.deploy(q)
        fed.publish("q.rows", {"ts": [1], "v": [21]})
        with fed.subscribe("q.out", from_="oldest") as trains:
            assert trains.next("30s").batch.to_pylist() == [{"ts": 1, "v": 42}]


def test_with_keys(folder: Path) -> None:
    for name, kind in (("a", "node"), ("maker", "client"), ("late", "client")):
        write_key(folder / f"{name}.key", kind, CurveKey.new())
    rules = {"key": read_public(folder / "maker.pub"), "status": True}
    given = fields(folder, federation="f", keys={"node": folder / "a.key"}, clients={"maker": rules})
    with md.node(given | {"listen": "tcp://0.0.0.0:*"}) as node:
        with pytest.raises(md.LinkError, match="key= is not"):
            node.connect()
        with node.connect(key=folder / "maker.key") as fed:
            assert fed.status()["node"] == "a"
        with pytest.raises(md.MedusaError, match=r"\[keys\] came or went"):
            given_without_keys(node)


def given_without_keys(node: md.Node) -> None:
    config = node._config
    assert isinstance(config, dict)
    for name in ("keys", "clients", "federation"):
        del config[name]
    config["listen"] = "tcp://127.0.0.1:*"
    node.reload()


def test_keys_and_rules_are_read_again(folder: Path) -> None:
    for name, kind in (("a", "node"), ("late", "client")):
        write_key(folder / f"{name}.key", kind, CurveKey.new())
    given = fields(folder, federation="f", keys={"node": folder / "a.key"}, clients={})
    with md.node(given) as node:
        given["clients"]["late"] = {"key": read_public(folder / "late.pub"), "status": True}
        node.reload()
        with node.connect(key=folder / "late.key") as fed:
            assert fed.status()["node"] == "a"
    with md.node(fields(folder, "b")) as node:
        with pytest.raises(md.MedusaError, match=r"has no \[keys\]"):
            node.reload()
        with pytest.raises(md.LinkError, match="has no keys"):
            node.connect(key=folder / "late.key")


# --- what it says ---------------------------------------------------------------------------------


def test_reports_go_to_the_log_or_to_the_program(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    (folder / "data").mkdir()
    given = fields(folder, peers={"b": f"ipc://{folder}/b"})
    told: list[tuple[str, str]] = []
    with md.node(fields(folder, "b", peers={"a": f"ipc://{folder}/a"})):
        with md.node(given, report=lambda *each: told.append(each)) as node:
            while node.status()["peers"]["b"] != "up":
                pass
        assert ("info", "peer up peer=b") in told
        assert not [each for each in caplog.records if each.getMessage().startswith("a: ")]

        def fails(level: str, line: str) -> None:
            raise RuntimeError("never mind")

        with caplog.at_level(logging.INFO, "medusa.node"), md.node(given, report=fails) as node:
            while node.status()["peers"]["b"] != "up":
                pass
            assert node.alive
    said = [each.getMessage() for each in caplog.records]
    assert "a: report= failed, on info: peer up peer=b" in said


def test_a_report_may_close_the_node_and_not_ask_it(folder: Path) -> None:
    seen: list[Any] = []

    def report(level: str, line: str) -> None:
        with pytest.raises(md.StateError, match="would wait for itself"):
            node.status()
        node.close()
        seen.append(line)

    with md.node(fields(folder, "b", peers={"a": f"ipc://{folder}/a"})):
        node = md.node(fields(folder, peers={"b": f"ipc://{folder}/b"}), report=report).start()
        node._thread.join(DEADLINE_S)
    assert not node.alive
    assert node.failed is None
    assert "peer up peer=b" in seen


def dies(node: md.Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its loop meets a bug of ours."""

    def turn(loop: NodeLoop, events: Any) -> None:
        raise ValueError("planted")

    monkeypatch.setattr(NodeLoop, "turn", turn)
    node._node.loop._transport.wake()
    node._thread.join(DEADLINE_S)
    monkeypatch.undo()


# --- asyncio --------------------------------------------------------------------------------------


def test_in_asyncio_others_have_their_turn(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waited = threading.Event()
    honest = node_thread.assembled

    def slowly(*given: Any, **options: Any) -> Any:
        assert waited.wait(DEADLINE_S)  # Until another task had its turn.
        return honest(*given, **options)

    monkeypatch.setattr(node_thread, "assembled", slowly)

    async def another() -> None:
        waited.set()

    async def program() -> list[int]:
        task = asyncio.create_task(another())
        async with md.node(fields(folder)) as node:
            await task
            fed = await asyncio.to_thread(node.connect)
            await asyncio.to_thread(fed.deploy, query())
            trains = await asyncio.to_thread(fed.subscribe, "q.out", "oldest")
            reading = asyncio.create_task(read(trains))
            await asyncio.to_thread(fed.publish, "q.rows", {"ts": [1, 2, 3], "v": [1, 2, 3]})
            with pytest.raises(md.LinkError, match=r"waited .* for rows of 'q.out'"):
                await trains.next_async("10ms")
            fed.finish("q.rows")
            found = await asyncio.wait_for(reading, DEADLINE_S)
            await asyncio.to_thread(fed.flush)
            fed.close()
        assert not node.alive
        return found

    async def read(trains: Any) -> list[int]:
        return [each for train in [t async for t in trains] for each in train.batch["total"].to_pylist()]

    assert asyncio.run(program()) == [6]
    assert threads() == set()


@pytest.mark.usefixtures("deadline")
def test_a_cancelled_start_leaves_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    began, go_on = threading.Event(), threading.Event()
    honest = node_thread.assembled

    def slowly(*given: Any, **options: Any) -> Any:
        began.set()
        assert go_on.wait(DEADLINE_S)
        return honest(*given, **options)

    monkeypatch.setattr(node_thread, "assembled", slowly)
    entered: list[md.Node] = []

    async def user() -> None:
        async with md.node(fields(folder)) as node:
            entered.append(node)

    async def program() -> None:
        task = asyncio.create_task(user())
        await asyncio.to_thread(began.wait, DEADLINE_S)
        task.cancel()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(program())
    assert entered == []
    assert threads() == set()


def test_errors_in_asyncio(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def wrong() -> None:
        async with md.node({"name": "a"}):
            pass

    with pytest.raises(md.MedusaError, match="data is missing"):
        asyncio.run(wrong())

    async def program() -> None:
        async with md.node(fields(folder)) as node:
            dies(node, monkeypatch)
            with pytest.raises(md.StateError, match="ValueError: planted"):
                await asyncio.to_thread(node.status)

    with pytest.raises(md.StateError, match="ValueError: planted"):
        asyncio.run(program())
