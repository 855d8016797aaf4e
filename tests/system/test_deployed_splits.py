"""Boxes of a deployed query are split over processes and merged again under a steady stream: all is exact."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

import medusa as md
from medusa.errors import LinkError, QueryError
from tests.system.nodes import DEADLINE_S, TIMEOUT, ForkedNodes, ordered, until
from tests.system.test_splits import ROWS, SCHEMA, query, rows

pytestmark = pytest.mark.system


class Stream:
    """A publisher that goes on until it is told to end, and a reader of each sink.

    Args:
        query: makes what is deployed, with the source and the sinks of that of ``tests.system.test_splits``.
        passed: whether a row of ``all`` stands for one that was published.
        ahead: so many rows are published and not read yet: a stream, not a flood.
    """

    def __init__(
        self,
        nodes: ForkedNodes,
        query: Callable[[], md.Query] = query,
        passed: Callable[[dict[str, object]], bool] = lambda row: True,
        *,
        ahead: int = 10 * ROWS,
    ) -> None:
        self.nodes, self._ahead = nodes, ahead
        self._query, self._passed, self._through = query, passed, 0
        self.published = 0
        self.got: dict[str, list[dict[str, object]]] = {"out": [], "all": []}
        self.failed: list[BaseException] = []
        self._over = threading.Event()
        targets = [(self._publish, ()), *((self._read, (sink,)) for sink in self.got)]
        self._threads = [threading.Thread(target=run, args=args, daemon=True) for run, args in targets]
        for thread in self._threads:
            thread.start()

    def _publish(self) -> None:
        try:
            with md.connect(self.nodes.addresses["a"], timeout=TIMEOUT) as fed:
                while not self._over.wait(0.01):
                    if self.published - self._through < self._ahead:
                        fed.publish("q.rows", rows(self.published))
                        self.published += ROWS
                fed.finish("q.rows")
        except BaseException as error:
            self.failed.append(error)

    def _read(self, sink: str) -> None:
        try:
            with md.connect(self.nodes.addresses["b"], timeout=TIMEOUT) as fed:
                for train in fed.subscribe(f"q.{sink}", from_="oldest"):
                    came = train.batch.to_pylist()
                    self.got[sink] += came
                    if sink == "all":
                        self._through += sum(map(self._passed, came))
        except BaseException as error:
            self.failed.append(error)

    def goes_on(self) -> None:
        """Rows published from now on come out."""
        before = {sink: len(got) for sink, got in self.got.items()}

        def there() -> bool:
            return bool(self.failed) or all(len(got) > before[sink] + 20 for sink, got in self.got.items())

        until(there, what="more rows come out", deadline_s=3 * DEADLINE_S)
        assert self.failed == []

    def end(self) -> None:
        """Everything came, in the order of one program."""
        self._over.set()
        for thread in self._threads:
            thread.join(3 * DEADLINE_S)
            assert not thread.is_alive()
        assert self.failed == []
        begins = range(0, self.published, ROWS)
        table = {name: [value for begin in begins for value in rows(begin)[name]] for name in SCHEMA}
        expected = md.collect(self._query(), rows=table)
        for sink, got in self.got.items():
            assert got == expected[sink].to_pylist()


@pytest.fixture
def nodes(tmp_path):
    made = ForkedNodes(tmp_path, ["a", "b", "c"])
    yield made
    made.close()


def fragments(fed: md.Federation) -> dict[str, list[str]]:
    [known] = fed.queries()
    return known["fragments"]


def test_split_in_three_over_three_nodes_and_merged_again_under_a_stream(nodes):
    nodes.start()
    with md.connect(nodes.addresses["a"], timeout=TIMEOUT) as fed:
        fed.deploy(query(), at={"a": ["rows"], "c": ["per_k", "so_far"]})
        stream = Stream(nodes)
        stream.goes_on()
        told = ordered(lambda: fed.split("q/per_k", 3, at=["a", "b", "c"]))
        parts = {"q/per_k-1": "a", "q/per_k-2": "b", "q/per_k-3": "c"}
        assert (told["parts"], told["node"]) == (parts, "c")
        once = bool(told["shares"])  # A split that is asked for again, on a busy machine, was no split.
        assert told["pause_us"] > 0 or not once
        assert told["bytes"] > 0 or not once, "parts went to other nodes"
        stream.goes_on()
        until(lambda: {name: [node] for name, node in parts.items()}.items() <= fragments(fed).items())
        assert told["ranges"] == [(1 << 64) // 3, (1 << 65) // 3]
        assert sum(told["shares"]) == pytest.approx(1) or not once
        assert ordered(lambda: fed.split("q/per_k", 3, at=["a", "b", "c"])) == {
            **told,
            "pause_us": 0,
            "shares": [],
            "bytes": 0,
        }
        with pytest.raises(LinkError, match="it is split in 3 already"):
            fed.split("q/per_k", 2)
        told = ordered(lambda: fed.split("q/so_far", 2, ranges="weight"))
        assert told["parts"] == {"q/so_far-1": "c", "q/so_far-2": "c"}
        assert max(told["shares"], default=0) < 0.9
        stream.goes_on()
        told = ordered(lambda: fed.merge("q/per_k"))
        assert told["node"] == "c"
        assert ordered(lambda: fed.merge("q/so_far"))["node"] == "c"
        until(lambda: len(fragments(fed)) == 2)
        with pytest.raises(LinkError, match="box 'q/per_k' isn't split"):
            fed.merge("q/per_k")
        stream.goes_on()
        stream.end()
        fed.undeploy("q")
        until(lambda: not fed.queries())


def test_what_was_split_outlives_its_node_and_what_is_refused_changes_nothing(nodes):
    nodes.start()
    with md.connect(nodes.addresses["b"], timeout=TIMEOUT) as fed:
        fed.deploy(query(), at={"a": ["rows"], "c": ["per_k", "so_far"]})
        before = fragments(fed)
        with pytest.raises(QueryError, match="a source that is named at several nodes is split there"):
            fed.split("q/rows", 2)
        with pytest.raises(LinkError, match="has no box 'per_key'") as caught:
            fed.split("q/per_key", 2)
        assert "per_k" in caught.value.hint
        with pytest.raises(LinkError, match="no query 'z' is deployed"):
            fed.split("z/per_k", 2)
        with pytest.raises(LinkError, match="at names 'cc', which is no node here") as caught:
            fed.split("q/per_k", 2, at=["a", "cc"])
        assert caught.value.hint == "did you mean 'c'?"
        for wrong in ("weigth", [1 << 64], [0], [1.5]):
            with pytest.raises(QueryError, match="split: ranges is"):
                fed.split("q/per_k", 2, ranges=wrong)
        with pytest.raises(QueryError, match="2 parts need 1 cuts"):
            fed.split("q/per_k", 2, ranges=[1, 2])
        assert len(fragments(fed)) == 2
        with pytest.raises(LinkError, match="is called query/box"):
            fed.merge("per_k")
        assert fragments(fed) == before
        stream = Stream(nodes)
        stream.goes_on()
        ordered(lambda: fed.split("q/per_k", 2))
        nodes.kill("c")
        nodes.start("c")
        stream.goes_on()
        assert ordered(lambda: fed.merge("q/per_k"))["node"] == "c"
        nodes.kill("c")
        nodes.start("c")
        stream.goes_on()
        stream.end()
