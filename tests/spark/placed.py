"""A query over two nodes in threads, and a fragment of it on Spark for a while."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

import medusa as md
from medusa.nodes.placement.placement import cut

__all__ = ["Reading", "node_of", "over_nodes"]

DEADLINE_S = 300
TIMEOUT = "120s"
PIECES = 24
GOES, THERE, BACK, HERE = 6, 12, 15, 18
"""It goes while these pieces are published, is there, comes back, and has come back."""


class Reading:
    """Takes all of a stream."""

    def __init__(self, fed: md.Federation, stream: str) -> None:
        self._fed, self._stream = fed, stream
        self._schema: pa.Schema | None = None
        self._batches: list[pa.RecordBatch] = []
        self._failed: list[BaseException] = []
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        try:
            with self._fed.subscribe(self._stream, from_="oldest") as trains:
                self._batches += [train.batch for train in trains]
                self._schema = trains.schema
        except BaseException as error:
            self._failed.append(error)

    def all(self) -> pa.Table:
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive()
        assert not self._failed
        return pa.Table.from_batches(self._batches, self._schema)


def node_of(folder: Path, name: str, *peers: str, **more: Any) -> dict[str, Any]:
    """Its configuration."""
    return {
        "name": name,
        "listen": f"ipc://{folder}/{name}.sock",
        "data": folder / name,
        "peers": {peer: f"ipc://{folder}/{peer}.sock" for peer in peers},
        "limits": {"checkpoint_every": "2s"},
        **more,
    }


def over_nodes(
    query: md.Query, at: Mapping[str, Sequence[str]], inputs: Mapping[str, pa.Table], folder: Path, spark: Any
) -> dict[str, pa.Table]:
    """What each sink gives over nodes ``a`` and ``b``.

    Args:
        spark: the fragment at ``b`` goes there and comes back, while rows flow; None: it stays.
    """
    [moved] = [each.name for each in cut(query.graph, at).fragments if each.node == "b"]
    folder.mkdir()
    with contextlib.ExitStack() as stack:
        for name, peers in (("a", ("b", "spark1")), ("b", ("a", "spark1"))):
            stack.enter_context(md.node(node_of(folder, name, *peers)))
        far = None
        if spark is not None:
            config = node_of(folder, "spark1", "a", "b", spark={"shards": 2})
            far = stack.enter_context(md.spark.participant(config, spark))
        fed, orders = (stack.enter_context(md.connect(f"ipc://{folder}/{name}.sock")) for name in "ab")
        fed.deploy(query, at=at)
        readings = {sink: Reading(orders, f"{query.name}.{sink}") for sink in query.sinks}

        def publish(first: int, behind: int) -> None:
            for piece in range(first, behind):
                for source, rows in inputs.items():
                    low, high = (rows.num_rows * each // PIECES for each in (piece, piece + 1))
                    fed.publish(f"{query.name}.{source}", rows.slice(low, high - low))

        publish(0, GOES)
        with _moving(orders, moved, "spark1" if far else ""):
            publish(GOES, THERE)
        publish(THERE, BACK)
        if far is not None:
            fed.flush(TIMEOUT)
            assert far.status()["rows_in"] > 0
            assert [each["fragment"] for each in far.status()["fragments"]] == [moved]
        back = stack.enter_context(far.connect(TIMEOUT)) if far else orders
        with _moving(back, moved, "b" if far else ""):
            publish(BACK, HERE)
        publish(HERE, PIECES)
        for source in inputs:
            fed.finish(f"{query.name}.{source}")
        return {sink: reading.all() for sink, reading in readings.items()}


@contextlib.contextmanager
def _moving(fed: md.Federation, fragment: str, to: str) -> Iterator[None]:
    """It is ordered to go; behind it has gone."""
    answers: list[Any] = []

    def work() -> None:
        answers.append(fed.move(fragment, to=to, timeout=TIMEOUT)["node"])

    if not to:
        yield
        return
    thread = threading.Thread(target=work)
    thread.start()
    yield
    thread.join(DEADLINE_S)
    assert answers == [to]
