"""``medusa pipeline archive``: a stream into an archive, each row once."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import click

from medusa.cli.options.command_options import AS_JSON, FILE, FOLDER, example
from medusa.cli.options.key_options import key_options
from medusa.cli.options.query_file import read_query
from medusa.cli.pipeline import (
    new_folder,
    period_of,
    shown,
    spark_options,
    spark_session,
    told_of,
)
from medusa.errors import DataError

__all__ = ["archive"]


@click.command(
    epilog=example(
        "medusa pipeline archive netmon.flows --gateway tcp://127.0.0.1:7777 --out flows --time ts --unit us",
        "medusa pipeline archive netmon.flows --gateway tcp://127.0.0.1:7777 --out flows --trigger 10s",
    )
)
@click.argument("stream")
@click.option("--gateway", required=True, metavar="ENDPOINT", help="where `medusa gateway` listens")
@click.option(
    "--out", required=True, type=FOLDER, metavar="FOLDER", help="a new folder, or one that was begun so"
)
@click.option("--available-now", is_flag=True, help="take what is there, and end  [default]")
@click.option(
    "--trigger", metavar="DURATION", help="look every so often, such as 10s, until the stream has ended"
)
@click.option("--time", help="the column that is the rows' time  [default: none]")
@click.option("--unit", type=click.Choice(["s", "ms", "us", "ns"]), help="of a time that is an integer")
@click.option("--query", "query_file", type=FILE, help="take the time from a source of this query")
@click.option("--source", help="which, where the query has several")
@click.option("--period", metavar="DURATION", help="cut files by ranges of time, such as 1h")
@click.option(
    "--from", "start", default="oldest", show_default=True, metavar="oldest|now|N", help="where it begins"
)
@click.option("--accept-loss", is_flag=True, help="go on where rows of the stream are lost, and count them")
@click.option(
    "--epoch-rows",
    type=click.IntRange(min=1),
    default=1 << 20,
    show_default=True,
    help="the most rows of an epoch",
)
@key_options
@partial(spark_options, masters="local[N], spark://host:port")  # Epochs end in our own process.
@AS_JSON
def archive(
    stream: str,
    out: Path,
    available_now: bool,
    trigger: str | None,
    query_file: Path | None,
    master: str | None,
    memory: str,
    quiet: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Write STREAM (query.sink) to an archive, each row once, whatever dies.

    Started again with the same FOLDER it goes on where it was. Each archive reads the stream under a name of
    its own, which ends with the stream. Ctrl-C and SIGTERM end it in order; the archive is whole at any time.
    """
    from medusa.apps.pipeline.archive import archive

    if available_now and trigger is not None:
        raise DataError("--available-now and --trigger: leave one out", code="data.argument")
    period_of(options["period"])
    period_of(trigger, "--trigger", minimum_us=1000)
    new_folder(out)
    query = None if query_file is None else read_query(query_file)
    with spark_session(master, memory) as spark, shown(quiet=quiet) as tell, _stopped_by_signals() as stop:
        stored = archive(
            stream, spark, out, trigger=trigger, query=query, stop=stop, progress=tell, **options
        )
    told_of(stored, as_json=as_json)


@contextlib.contextmanager
def _stopped_by_signals() -> Iterator[threading.Event]:
    """An event that Ctrl-C and SIGTERM set; a second one ends the program at once. Behind Spark, which has a
    handler of its own."""
    stop = threading.Event()
    before: dict[int, Any] = {}

    def asked(number: int, _: object) -> None:
        stop.set()
        signal.signal(number, before[number])

    for number in (signal.SIGINT, signal.SIGTERM):
        if threading.current_thread() is threading.main_thread():
            before[number] = signal.signal(number, asked)
    try:
        yield stop
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
