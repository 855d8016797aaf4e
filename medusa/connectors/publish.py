"""``medusa publish``: the rows of a file to a stream of a node, at a chosen speed."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import click

from medusa.connectors.key_options import key_options
from medusa.connectors.places import FORMATS, place_of
from medusa.errors import DataError
from medusa.query.suggest import did_you_mean

__all__ = ["paced", "paced_by", "publish"]

STEP_S = 0.1
"""Rows of so much time of this machine are sent at once."""
EXAMPLE = (
    "\b\nExample:\n  medusa publish tolls.cars cars.parquet --node tcp://127.0.0.1:5555 --speed 60 --time ts"
)


@click.command(epilog=EXAMPLE)
@click.argument("stream")
@click.argument("file")
@click.option("--node", "address", required=True, metavar="ADDRESS", help="tcp://HOST:PORT or ipc://PATH")
@key_options
@click.option(
    "--speed",
    type=click.FloatRange(min=0),
    default=0.0,
    show_default=True,
    help="1 is real time, 60 a minute of the file per second, 0 as fast as possible",
)
@click.option("--time", "column", help="the column that --speed goes by, a timestamp")
@click.option("--format", type=click.Choice(FORMATS), help="of a file whose name doesn't tell")
@click.option("--finish", is_flag=True, help="at the end say that no more rows come: windows close")
@click.option("--json", "as_json", is_flag=True, help="one JSON document, for scripts")
def publish(
    stream: str,
    file: str,
    *,
    address: str,
    speed: float,
    column: str | None,
    format: str | None,
    finish: bool,
    as_json: bool,
    key: str | None,
    server_key: str | None,
) -> None:
    """Publish the rows of FILE into STREAM (query.source) of a node.

    FILE is csv, jsonl, parquet, arrow or arrows; - is standard input. Text is read with the types of the
    source's columns. It ends when the node holds all.
    """
    from medusa.connectors.readers import open_reader
    from medusa.runtime.client import connect

    place = place_of(file, format=format)
    rows = 0
    with connect(address, key=key, server_key=server_key) as fed:
        source = fed.source(stream)
        reader = open_reader(place, types={}, known=source["columns"], strict=True)
        try:
            if source["time"] is not None:
                reader.require(source["time"])
            batches = reader.batches()
            if speed:
                names = reader.schema.names
                if column not in names:
                    raise DataError(
                        f"--speed goes by a column: there is no {column!r}"
                        if column
                        else "--speed needs --time COLUMN",
                        hint=did_you_mean(column or "", names),
                        code="data.column",
                    )
                batches = paced(batches, str(column), speed, clock=time.monotonic, sleep=time.sleep)
            for batch in batches:
                fed.publish(stream, batch)
                rows += batch.num_rows
            if finish:
                fed.finish(stream)
        finally:
            reader.close()
    click.echo(json.dumps({"stream": stream, "rows": rows}) if as_json else f"{rows:,} rows in {stream}")


def paced(
    batches: Iterator[Any],
    column: str,
    speed: float,
    *,
    clock: Callable[[], float],
    sleep: Callable[[float], object],
) -> Iterator[Any]:
    """The same rows, each when its time has come: ``speed`` seconds of the file in one of the clock.

    Raises:
        DataError: the column is no timestamp, or null.
    """
    import pyarrow as pa

    def timed() -> Iterator[tuple[Any, Any]]:
        for batch in batches:
            times = batch.column(batch.schema.names.index(column))
            if not pa.types.is_timestamp(times.type) or times.null_count:
                raise DataError(
                    f"--time {column}: expected timestamps without null, got {times.type}", code="data.time"
                )
            yield batch, times.cast(pa.timestamp("us", times.type.tz), safe=False).cast(pa.int64()).to_numpy()

    return paced_by(timed(), speed, clock=clock, sleep=sleep)


def paced_by(
    batches: Iterator[tuple[Any, Any]],
    speed: float,
    *,
    clock: Callable[[], float],
    sleep: Callable[[float], object],
) -> Iterator[Any]:
    """The same, of batches with their times in microseconds beside them; a batch may come in slices."""
    import numpy as np

    began, first_us, highest_us = clock(), None, -(1 << 63)
    for batch, micros in batches:
        peaks = np.maximum(np.maximum.accumulate(micros), highest_us)
        first_us = int(micros[0]) if first_us is None and len(micros) else first_us
        row = 0
        while row < batch.num_rows and first_us is not None:
            due = began + (int(peaks[row]) - first_us) / 1e6 / speed
            wait = due - clock()
            if wait > 0:
                sleep(wait)
            reached_us = first_us + (max(clock(), due) - began + STEP_S) * speed * 1e6
            end = max(row + 1, int(np.searchsorted(peaks, reached_us, side="right")))
            yield batch.slice(row, end - row)
            row = end
        if len(peaks):
            highest_us = int(peaks[-1])
