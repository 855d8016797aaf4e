"""Many small trains at once: they wait for a node that is slower, and the connection stands."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import medusa as md
from medusa.runtime.transport import zeromq
from medusa.runtime.transport.zeromq import Transport

ROWS = 600


def test_a_program_that_publishes_faster_than_its_node_takes_does_not_cut_itself_off(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Credit bounds how many rows wait, not the number of frames."""
    cuts: list[str] = []
    cut = Transport.cut

    def counted(transport: Transport, link: str, *, shun: bool = True) -> None:
        cuts.append(link)
        cut(transport, link, shun=shun)

    monkeypatch.setattr(Transport, "cut", counted)
    monkeypatch.setattr(zeromq, "BACKLOG_MAX", 64)
    folder: Path = tmp_path_factory.mktemp("b")  # The path of a socket has to be short.
    q = md.Query("q")
    q.sink("out", q.source("rows", {"v": "int64"}, time=None).filter("v >= 0", name="f"))
    row = pa.record_batch({"v": pa.array([1], pa.int64())})
    with (
        md.node({"name": "a", "listen": f"ipc://{folder}/a", "data": folder / "d"}) as node,
        node.connect("30s") as fed,
    ):
        fed.deploy(q, at={"a": ["rows"]})
        for _ in range(ROWS):
            fed.publish("q.rows", row)
        fed.flush()
        (fragment,) = fed.status()["fragments"]
        assert fragment["rows_in"] == ROWS
        assert cuts == []
