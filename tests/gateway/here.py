"""A node in this process, with streams that gateways read and write; and what Spark says to those."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import medusa as md
from medusa.spark.options import Options, options_from

__all__ = ["named", "options", "running", "timed", "values", "with_gateway"]

WAIT = "60s"


@contextlib.contextmanager
def running(folder: Path, *queries: md.Query) -> Iterator[tuple[md.Federation, str]]:
    """A node with these, which holds soon what it has; a client of it, and its address."""
    address = f"ipc://{folder}/n"
    settings: dict[str, Any] = {"name": "n", "listen": address, "data": f"{folder}/n.data"}
    settings["limits"] = {"checkpoint_every": "50ms"}
    with md.node(settings), md.connect(address, timeout=WAIT) as fed:
        for query in queries:
            fed.deploy(query)
        yield fed, address


@contextlib.contextmanager
def with_gateway(folder: Path, *queries: md.Query) -> Iterator[tuple[md.Federation, md.spark.Gateway]]:
    """The same, and a gateway to it."""
    with (
        running(folder, *queries) as (fed, address),
        md.spark.gateway(address, folder / "gateway") as gateway,
    ):
        yield fed, gateway


def values(name: str = "q") -> md.Query:
    """What comes into ``rows`` goes out of ``out``: numbers without a time."""
    q = md.Query(name)
    q.sink("out", q.source("rows", {"v": "int64"}, time=None))
    return q


def timed(name: str = "q", slack: str | None = None) -> md.Query:
    """The same with a time."""
    q = md.Query(name)
    rows = q.source("rows", {"ts": "int64", "v": "int64"}, time="ts", unit="us", slack=slack)
    q.sink("out", rows)
    return q


def options(gateway: md.spark.Gateway, stream: str = "q.out", **more: str) -> Options:
    """What ``.option(...)`` says of a stream or source at this gateway."""
    return options_from({"endpoint": gateway.address, "stream": stream, "timeout": "20s", **more})


def named(fed: md.Federation) -> list[str]:
    """Those for whom the node keeps rows of its only fragment."""
    [fragment] = fed.status()["fragments"]
    return [each["name"] for output in fragment["outputs"] for each in output["named"]]
