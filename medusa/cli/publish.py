"""``medusa publish``: the rows of a file to a stream of a node, at a chosen speed."""

from __future__ import annotations

import json
import time

import click

from medusa.cli.options.command_options import AS_JSON, NODE
from medusa.cli.options.key_options import key_options
from medusa.errors import DataError
from medusa.io.formats import FORMATS, FORMATS_IN_WORDS
from medusa.io.pacing import paced
from medusa.io.places import place_of
from medusa.query.suggest import did_you_mean

__all__ = ["publish"]

EXAMPLE = (
    "\b\nExample:\n  medusa publish tolls.cars cars.parquet --node tcp://127.0.0.1:5555 --speed 60 --time ts"
)


HELP = f"""Publish the rows of FILE into STREAM (query.source) of a node.

FILE is {FORMATS_IN_WORDS}; - is standard input. Text is read with the types of the source's columns. It
ends when the node holds all.
"""


@click.command(epilog=EXAMPLE, help=HELP)
@click.argument("stream")
@click.argument("file")
@NODE
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
@AS_JSON
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
    from medusa.io.readers import open_reader
    from medusa.runtime.client.client import connect

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
