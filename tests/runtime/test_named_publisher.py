"""Named publishers against a node in this process: rows are numbered on, whoever sends them."""

from __future__ import annotations

import pytest

import medusa as md
from medusa.errors import DataError, LinkError
from tests.runtime.test_named import WAIT, started
from tests.runtime.test_process import query
from tests.system.nodes import until


@pytest.fixture
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("n")


@pytest.fixture
def node(place, monkeypatch):
    made = started(place, monkeypatch)
    yield f"ipc://{place}/a"
    made.stop()


@pytest.fixture
def fed(node):
    with md.connect(node, timeout=WAIT) as made:
        made.deploy(query())
        yield made


def rows(*values):
    return {"ts": list(values), "v": list(values)}


def refused(out, words):
    """The code by which more rows of it are refused, at the latest when they should be durable."""

    def more():
        out.publish(rows(9))
        out.flush(WAIT)

    with pytest.raises(LinkError, match=words) as caught:
        more()
    return caught.value.code


def named(fed, name="w"):
    [fragment] = fed.status()["fragments"]
    return next((each for each in fragment["publishers"] if each["name"] == name), None)


def read(fed, count):
    with fed.subscribe("q.out", from_="oldest") as trains:
        found = []
        while len(found) < count:
            train = trains.next(WAIT)
            found += enumerate(train.batch["v"].to_pylist(), start=train.first_seq)
        return found


def test_rows_of_a_name_are_numbered_on(fed, node):
    with fed.publisher("q.rows", durable="w/7") as out:
        assert (out.next_row, out.durable_row) == (0, 0)
        out.publish(rows(1, 2, 3))
        assert out.next_row == 3
        out.flush(WAIT)
        assert out.durable_row == 3
    with md.connect(node, timeout=WAIT) as other, other.publisher("q.rows", durable="w/7") as out:
        assert (out.next_row, out.durable_row) == (3, 3)
        out.publish(rows(4))
        out.boundary(4)
    assert read(fed, 4) == [(0, 1), (1, 2), (2, 3), (3, 4)]
    until(lambda: named(fed, "w/7")["boundary_us"] == 4, what="its boundary has come")
    until(lambda: named(fed, "w/7")["durable_row"] == 4, what="all is durable")
    seen = named(fed, "w/7")
    assert seen | {"from": ""} == {
        "source": "rows",
        "stream": "q.rows",
        "name": "w/7",
        "owner": "",
        "next_row": 4,
        "durable_row": 4,
        "left_out_rows": 0,
        "boundary_us": 4,
        "finished": False,
        "connected": seen["connected"],
        "from": "",
    }


def test_who_opens_a_name_last_has_it(fed, node):
    with fed.publisher("q.rows", durable="w") as first:
        first.publish(rows(1))
        first.flush(WAIT)
        with md.connect(node, timeout=WAIT) as other, other.publisher("q.rows", durable="w") as out:
            assert out.next_row == 1
            out.publish(rows(2))
            assert refused(first, "another program") == "E_TAKEN"
            with pytest.raises(LinkError, match="another program"):
                first.boundary(7)
        first.close()
    assert read(fed, 2) == [(0, 1), (1, 2)]


def test_one_program_has_several_names_and_its_own(fed):
    with fed.publisher("q.rows", durable="a") as a, fed.publisher("q.rows", durable="b") as b:
        a.publish(rows(1, 2))
        fed.publish("q.rows", rows(3))
        b.publish(rows(4))
        fed.flush(WAIT)
        assert (a.durable_row, b.durable_row) == (2, 1)
    assert sorted(value for _, value in read(fed, 4)) == [1, 2, 3, 4]


def test_a_name_that_was_ended_begins_anew(fed):
    with fed.publisher("q.rows", durable="w") as out:
        out.publish(rows(1))
        out.flush(WAIT)
        fed.unpublish("q.rows", durable="w")
        assert refused(out, "ended") == "E_REMOVED"
        out.close()
    assert named(fed) is None
    with pytest.raises(LinkError, match="no named publisher 'w'") as caught:
        fed.unpublish("q.rows", durable="w")
    assert caught.value.code == "E_NAME"
    with fed.publisher("q.rows", durable="w") as out:
        assert out.next_row == 0
        out.publish(rows(5))
    assert read(fed, 2) == [(0, 1), (1, 5)]


def test_what_was_finished_under_a_name_is_refused_until_it_is_ended(fed):
    with fed.publisher("q.rows", durable="w") as out, fed.publisher("q.rows", durable="x"):
        out.publish(rows(1))
        out.finish()
        with pytest.raises(DataError, match="finished"):
            out.publish(rows(2))
        out.flush(WAIT)  # ``close`` waits for nothing.
        out.close()
        with pytest.raises(LinkError, match="has finished") as caught:
            fed.publisher("q.rows", durable="w")
        assert caught.value.code == "E_FINISHED"
        fed.unpublish("q.rows", durable="w")
        with fed.publisher("q.rows", durable="w") as out:
            assert out.next_row == 0


def test_a_node_that_comes_back_has_the_count(place, monkeypatch):
    node, address = started(place, monkeypatch), f"ipc://{place}/a"
    with md.connect(address, timeout=WAIT) as fed:
        fed.deploy(query())
        with fed.publisher("q.rows", durable="w") as out:
            out.publish(rows(1, 2))
            out.flush(WAIT)
            node.stop()
            out.publish(rows(3))
            node = started(place, monkeypatch)
            out.flush(WAIT)
        node.stop()
        node = started(place, monkeypatch)
        with fed.publisher("q.rows", durable="w") as out:
            assert out.next_row == 3
        assert read(fed, 3) == [(0, 1), (1, 2), (2, 3)]
        fed.undeploy("q")
        fed.deploy(query())
        with fed.publisher("q.rows", durable="w") as out:
            assert out.next_row == 0, "the query took its names along"
    node.stop()


def test_a_query_that_is_removed_is_not_begun_anew_behind_its_back(fed):
    with fed.publisher("q.rows", durable="w") as out:
        fed.undeploy("q")
        fed.deploy(query())
        assert refused(out, "removed|nothing is known") in ("E_REMOVED", "E_NAME")
        assert named(fed) is None
        out.close()


def test_a_connection_that_ends_waits_for_its_names_and_takes_them_along(fed, node):
    with md.connect(node, timeout=WAIT) as other:
        out = other.publisher("q.rows", durable="w")
        out.publish(rows(1, 2))
    assert out.closed
    assert named(fed)["durable_row"] == 2
    for call in (lambda: out.publish(rows(3)), lambda: out.next_row, lambda: out.boundary(3), out.finish):
        with pytest.raises(LinkError, match="closed"):
            call()
    with pytest.raises(LinkError, match="closed"):
        other.publisher("q.rows", durable="w")


def test_a_program_that_fails_closes_without_waiting(fed):
    out = fed.publisher("q.rows", durable="w")
    assert "'w' of 'q.rows'" in repr(out)
    with pytest.raises(ZeroDivisionError), out:
        raise ZeroDivisionError
    assert out.closed


@pytest.mark.parametrize("name", ["", "a//b", "/a", "a/", "A", "a.b", "x" * 65, 7])
def test_names_are_checked(fed, name):
    for call in (fed.publisher, fed.unpublish):
        with pytest.raises(LinkError, match="no name of a publisher"):
            call("q.rows", durable=name)


def test_no_such_source(fed):
    with pytest.raises(LinkError, match="q.rows"):
        fed.publisher("q.row", durable="w")
