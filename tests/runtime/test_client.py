"""The client against a node in this process: every refusal with its reason, every wait with its end."""

from __future__ import annotations

import contextlib

import pyarrow as pa
import pytest

import medusa as md
from medusa.errors import DataError, FullError, LinkError, QueryError
from tests.runtime.test_process import InThread, query, write


@pytest.fixture
def node(tmp_path_factory, monkeypatch, request):
    folder = tmp_path_factory.mktemp("c")
    patience = getattr(request, "param", "60s")
    more = f'[limits]\ncheckpoint_every = "50ms"\nsubscriber_timeout = "{patience}"\n'
    made = InThread(write(folder, more=more), monkeypatch)
    yield f"ipc://{folder}/a"
    made.stop()


@pytest.fixture
def fed(node):
    with md.connect(node, timeout="20s") as made:
        made.deploy(query())
        yield made


def test_nobody_there_is_said_in_time(tmp_path):
    with pytest.raises(LinkError, match=r"waited 200ms for node at ipc://.*is a node listening") as caught:
        md.connect(f"ipc://{tmp_path}/none", timeout="200ms")
    assert caught.value.code == "link.timeout"


def test_a_timeout_of_microseconds_is_a_mistake():
    with pytest.raises(LinkError, match="connect: timeout: expected a duration of at least 1ms, got 5"):
        md.connect("tcp://127.0.0.1:1", timeout=5)


@pytest.mark.parametrize("address", ["tcp://192.0.2.1:5555", "nonsense", "tcp://127.0.0.1:*", None])
def test_addresses_that_are_refused(address):
    with pytest.raises(LinkError, match="connect:"):
        md.connect(address)


def test_rows_come_as_they_were_published(fed):
    fed.subscribe("q.out", durable="keeps").close()  # What the reader takes would be forgotten.
    with fed.subscribe("q.out", from_="oldest") as trains:
        fed.publish("q.rows", {"ts": [1, 2, 3], "v": [5, -5, 6]})
        fed.publish("q.rows", pa.table({"v": pa.array([7], pa.int32()), "ts": [4]}))
        fed.boundary("q.rows", 1000)
        fed.finish("q.rows")
        table = trains.table("20s")
        assert table["v"].to_pylist() == [5, 6, 7]
        assert table.schema.names == ["ts", "v"]
        assert trains.ended
        assert trains.next("1ms") is None
    fed.flush("20s")
    with fed.subscribe("q.out", from_=2) as again:
        assert again.table("20s")["v"].to_pylist() == [7]


def test_what_does_not_fit_is_refused_whole(fed):
    fed.publish("q.rows", {"ts": [10], "v": [1]})
    for data, says in [
        ({"ts": [1]}, "column 'v' is missing"),
        ({"ts": [1], "v": ["x"]}, "expected int64"),
        ({"ts": [1, None], "v": [1, 1]}, "row 1 holds null"),
        ({"ts": [1], "v": [1], "w": [1]}, "'w' isn't in the schema"),
        ({"ts": [11, 2**61, 12], "v": [2, 3, 4]}, "a time is out of range"),
    ]:
        with pytest.raises(DataError, match=says):
            fed.publish("q.rows", data)
    with pytest.raises(DataError, match="is no time for a boundary"):
        fed.boundary("q.rows", "soon")
    fed.boundary("q.rows", 500)
    with pytest.raises(DataError, match="below the last one"):
        fed.boundary("q.rows", 499)
    fed.finish("q.rows")
    with pytest.raises(DataError, match="was finished by this client"):
        fed.publish("q.rows", {"ts": [600], "v": [1]})
    with fed.subscribe("q.out", from_="oldest") as trains:
        assert trains.table("20s")["v"].to_pylist() == [1]


def test_reading_from_beyond_the_end_is_refused_with_the_next_row(fed):
    fed.publish("q.rows", {"ts": [1, 2], "v": [1, 1]})
    with fed.subscribe("q.out", from_="oldest") as trains:
        assert len(trains.next("20s")) == 2
    with pytest.raises(
        LinkError, match=r"row 1000000 is beyond the end.*the next row is 2.*from 2 on"
    ) as caught:
        fed.subscribe("q.out", from_=10**6)
    assert caught.value.code == "E_SEQ"
    with fed.subscribe("q.out", from_=2) as trains:
        fed.publish("q.rows", {"ts": [3], "v": [7]})
        assert trains.next("20s").batch["v"].to_pylist() == [7]


def test_text_that_is_not_utf8_is_refused_and_the_source_goes_on(fed):
    other = md.Query("t")
    other.sink("out", other.source("words", {"ts": "int64", "w": "utf8"}, time="ts", unit="s"))
    fed.deploy(other)
    broken = pa.array([b"\xff\xfe"]).view(pa.string())
    with pytest.raises(DataError, match="column 'w': expected UTF-8, row 0"):
        fed.publish("t.words", pa.table({"ts": [1], "w": broken}))
    fed.publish("t.words", {"ts": [1], "w": ["fine"]})
    fed.finish("t.words")
    with fed.subscribe("t.out", from_="oldest") as trains:
        assert trains.table("20s")["w"].to_pylist() == ["fine"]


def test_names_and_commands_that_lead_nowhere(fed):
    with pytest.raises(QueryError, match=r"takes a md\.Query, came NoneType"):
        fed.deploy(None)
    with pytest.raises(LinkError, match=r"has no source 'q\.row' .did you mean 'q\.rows'"):
        fed.publish("q.row", {"ts": [1], "v": [1]})
    with pytest.raises(LinkError, match=r"no stream 'q\.ot'"):
        fed.subscribe("q.ot")
    with pytest.raises(LinkError, match="from_ is -3"):
        fed.subscribe("q.out", from_=-3)
    with pytest.raises(LinkError, match="is deployed already"):
        fed.deploy(query())
    other = md.Query("other")
    other.sink("out", other.source("rows", {"v": "int64"}, time=None))
    with pytest.raises(QueryError, match="no node 'elsewhere'"):
        fed.deploy(other, at={"elsewhere": ["rows"]})
    with pytest.raises(QueryError, match="deploy: at is str 'a', expected node -> list"):
        fed.deploy(other, at="a")
    with pytest.raises(LinkError, match="no query 'w'"):
        fed.undeploy("w")
    with fed.subscribe("q.out"), pytest.raises(LinkError, match="being read already") as caught:
        fed.subscribe("q.out")
    assert "close() the earlier subscription" in caught.value.hint


def test_what_was_read_to_its_end_can_be_read_again_without_closing_it(fed):
    keeps = fed.subscribe("q.out", from_="oldest", durable="keeps")
    fed.publish("q.rows", {"ts": [1, 2], "v": [5, 6]})
    fed.finish("q.rows")
    assert keeps.table("20s").num_rows == 2
    # Its rows may still be acknowledged: only who has it can say that it is done.
    with pytest.raises(LinkError, match="being read already"):
        fed.subscribe("q.out", from_="oldest")
    keeps.close()
    first = fed.subscribe("q.out", from_="oldest")
    assert first.table("20s").num_rows == 2
    second = fed.subscribe("q.out", from_=0)
    first.close()  # It is over: the second one goes on.
    assert second.table("20s").num_rows == 2
    assert first.ended


def test_removing_a_query_ends_those_who_use_it(fed):
    fed.publish("q.rows", {"ts": [1], "v": [1]})
    with fed.subscribe("q.out", from_="oldest") as trains:
        assert trains.next("20s") is not None
        fed.flush("20s")
        fed.undeploy("q")
        with pytest.raises(LinkError, match="query 'q' was removed"):
            trains.next("20s")
    with pytest.raises(LinkError, match="query 'q' was removed"):
        fed.publish("q.rows", {"ts": [2], "v": [1]})


def test_a_query_that_is_deployed_again_takes_rows_of_the_same_client(fed):
    for at in (1, 2, 3):
        fed.publish("q.rows", {"ts": [1, 2], "v": [at, at]})
        fed.flush("20s")
        with fed.subscribe("q.out", from_="oldest") as trains:
            assert trains.next("20s").batch["v"].to_pylist() == [at, at]
        fed.undeploy("q")
        fed.flush("20s")
        fed.deploy(query())


def test_rows_that_a_removed_query_never_took_are_told_once(fed, monkeypatch):
    fed.publish("q.rows", {"ts": [1], "v": [1]})
    fed.flush("20s")
    mind = fed._publishing._publishers["q.rows"]._mind
    monkeypatch.setattr(mind.sender, "_pump", lambda now_us, view: None)  # Nothing goes out any more.
    fed.publish("q.rows", {"ts": [2, 3], "v": [1, 1]})
    fed.undeploy("q")
    with pytest.raises(
        LinkError, match="2 rows for 'q.rows' were not durable when .*'q' was removed"
    ) as caught:
        fed.flush("20s")
    assert caught.value.code == "E_REMOVED"
    fed.flush("20s")


def test_rows_that_the_node_refuses_are_told_by_flush_once(fed, monkeypatch):
    from medusa.runtime.client import publisher as publishing

    monkeypatch.setattr(  # A client that doesn't check.
        publishing.RowChecks, "check", lambda self, batch: None
    )
    fed.publish("q.rows", {"ts": [1], "v": [1]})
    fed.flush("20s")
    fed.publish("q.rows", {"ts": [10, 2**61], "v": [2, 3]})
    fed.publish("q.rows", {"ts": [11], "v": [4]})
    with pytest.raises(DataError, match="rows 1 to 2 were not taken: .*out of range") as caught:
        fed.flush("20s")
    assert caught.value.code == "E_ROWS"
    fed.flush("20s")
    fed.finish("q.rows")
    with fed.subscribe("q.out", from_="oldest") as trains:
        assert trains.table("20s")["v"].to_pylist() == [1, 4]


def test_a_second_publisher_and_a_finished_source(fed, node):
    with md.connect(node, timeout="20s") as other:
        fed.publish("q.rows", {"ts": [1], "v": [1]})
        other.publish("q.rows", {"ts": [2], "v": [2]})
        fed.finish("q.rows")
        other.finish("q.rows")
        with fed.subscribe("q.out", from_="oldest") as trains:
            assert sorted(trains.table("20s")["v"].to_pylist()) == [1, 2]
    with md.connect(node, timeout="20s") as late, pytest.raises(LinkError, match="has ended"):
        late.publish("q.rows", {"ts": [3], "v": [3]})


def test_a_wait_without_rows_ends(fed):
    with fed.subscribe("q.out", timeout="50ms") as trains:
        with pytest.raises(LinkError, match=r"for rows of 'q\.out'") as caught:
            next(iter(trains))
        assert caught.value.code == "link.timeout"
        with pytest.raises(LinkError, match="waited"):
            trains.table("10ms")
    with pytest.raises(LinkError, match="was closed"):
        trains.next()


@pytest.mark.parametrize("node", ["1s"], indirect=True)
def test_a_reader_that_takes_nothing_is_cut_off_and_told_where(fed):
    """One window of credit fills; then nothing moves for longer than the node is patient."""
    rows = 200_000
    with fed.subscribe("q.out", from_="oldest") as trains:
        table = pa.table({"ts": range(rows), "v": [1] * rows})
        for _ in range(5):
            fed.publish("q.rows", table)
        loop, mind = fed._following.orders, trains._mind
        loop.wait(lambda: mind.receiver.refusal is not None, "being cut off", 30_000_000)
        taken = sum(len(trains.next("20s")) for _ in range(len(trains._mind.waiting)) if trains._mind.waiting)
        with pytest.raises(LinkError, match="nothing was taken for 1 s") as caught:
            trains.next("20s")
        assert caught.value.code == "E_CUT_OFF"
        assert 0 < taken < 5 * rows
        at = trains.next_row
    more = 0
    while taken + more < 5 * rows:
        with contextlib.suppress(LinkError), fed.subscribe("q.out", from_=at + more) as rest:
            while taken + more < 5 * rows:
                train = rest.next("20s")  # On a busy machine it may be cut off once more.
                assert train.first_seq == at + more
                more += len(train)
    assert taken + more == 5 * rows


def test_a_node_that_takes_nothing_fills_and_then_refuses(fed, monkeypatch):
    from medusa.runtime.client import publisher as publishing

    fed.publish("q.rows", {"ts": [1], "v": [1]})
    publisher = fed._publishing._publishers["q.rows"]
    monkeypatch.setattr(type(publisher._mind.sender), "full", property(lambda self: True))
    monkeypatch.setattr(fed._following.orders, "timeout_us", 50_000)
    with pytest.raises(FullError, match="has not taken .* bytes for 50ms"):
        fed.publish("q.rows", {"ts": [2], "v": [1]})
    monkeypatch.undo()
    assert isinstance(publisher, publishing.Publisher)


def test_after_closing_every_call_says_so(node):
    fed = md.connect(node, timeout="20s")
    assert "medusa.Federation at a" in repr(fed)
    fed.close()
    fed.close()
    for call in (fed.status, lambda: fed.subscribe("q.out"), lambda: fed.undeploy("q")):
        with pytest.raises(LinkError, match="was closed"):
            call()


def test_flush_and_leaving_wait_over_a_restart_of_the_node(tmp_path_factory, monkeypatch):
    """Rows are numbered per client and stream: those that came twice are taken once."""
    folder = tmp_path_factory.mktemp("c")
    config = write(folder, more='[limits]\ncheckpoint_every = "50ms"\n')
    node = InThread(config, monkeypatch)
    with md.connect(f"ipc://{folder}/a", timeout="20s") as fed:
        fed.deploy(query())
        fed.publish("q.rows", {"ts": [1, 2], "v": [1, 2]})
        fed.flush("20s")
        node.stop()
        fed.publish("q.rows", {"ts": [3], "v": [3]})
        with pytest.raises(LinkError, match="to hold what was published") as caught:
            fed.flush("100ms")
        assert caught.value.code == "link.timeout"
        node = InThread(config, monkeypatch)
        fed.publish("q.rows", {"ts": [4], "v": [4]})
        fed.finish("q.rows")
    with (
        md.connect(f"ipc://{folder}/a", timeout="20s") as fed,
        fed.subscribe("q.out", from_="oldest") as trains,
    ):
        assert trains.table("20s")["v"].to_pylist() == [1, 2, 3, 4]
    node.stop()
