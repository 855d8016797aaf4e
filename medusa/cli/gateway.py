"""``medusa gateway``: run one, see who reads and writes there, forget who won't come back."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from medusa.cli.options.command_options import AS_JSON, FILE, example
from medusa.cli.options.key_options import key_options
from medusa.errors import DataError, LinkError
from medusa.query.suggest import did_you_mean
from medusa.units import duration_text, duration_us, size_text

if TYPE_CHECKING:
    from medusa.spark.exchange import requests as r
    from medusa.spark.exchange.caller import GatewayConnection

__all__ = ["finish", "forget", "run", "status"]

Command = TypeVar("Command", bound=Callable[..., Any])

_SHOWN = 20
"""Writers in the table; --json has more."""


@click.command(epilog=example("medusa gateway gateway.toml", "medusa gateway run gateway.toml --json"))
@click.argument("config", type=FILE)
@click.option("--json", "as_json", is_flag=True, help="say as JSON where it listens, for scripts")
def run(config: Path, as_json: bool) -> None:
    """Run a gateway between Spark and a node until it is told to stop (Ctrl-C, SIGTERM).

    CONFIG is a TOML file: node, listen, data, name, [keys], [clients], [limits]; docs/spark.md describes it.
    A gateway that was killed goes on where it was when it is started again.
    """
    from medusa.spark.exchange.command import run_gateway

    run_gateway(config, as_json=as_json)


def _asking(command: Command) -> Command:
    for option in (
        AS_JSON,
        click.option("--timeout", default="10s", show_default=True, help="how long to wait for an answer"),
        key_options,
        click.option(
            "--gateway", "endpoint", required=True, metavar="ENDPOINT", help="where `medusa gateway` listens"
        ),
    ):
        command = option(command)
    return command


@contextlib.contextmanager
def _called(
    endpoint: str, timeout: str, key: str | None, server_key: str | None
) -> Iterator[GatewayConnection]:
    from medusa.spark.exchange.caller import Endpoint, GatewayConnection

    timeout_us = duration_us(timeout, what="--timeout", minimum_us=1000, error=DataError)
    made = GatewayConnection(Endpoint(endpoint, key or "", server_key or "", timeout_us))
    try:
        yield made
    finally:
        made.close()


@click.command(
    epilog=example(
        "medusa gateway status --gateway tcp://127.0.0.1:7777",
        "medusa gateway status --gateway tcp://127.0.0.1:7777 --json",
    )
)
@_asking
def status(endpoint: str, timeout: str, as_json: bool, **keys: Any) -> None:
    """Who reads and writes at a gateway, how far each is, and what is kept for them.

    A reader that nobody asks for any more holds up its stream: medusa gateway forget ends it. Numbers are
    those of rows; "silent" is how long nobody has asked, since the gateway was started at most.
    """
    import msgspec

    with _called(endpoint, timeout, **keys) as gateway:
        listed = _listed(gateway)
    if as_json:
        told = msgspec.structs.asdict(listed)
        del told["number"]
        click.echo(json.dumps(told, default=msgspec.structs.asdict))
        return
    from rich.console import Console

    terminal = Console(highlight=False)
    console = terminal if terminal.is_terminal else Console(highlight=False, width=200)
    if listed.node_why:
        console.print(f"the node doesn't answer: {listed.node_why}", markup=False)
    for table in _tables(listed):
        console.print(table)
    console.print(
        f"written and at no node yet: {size_text(listed.staged_bytes)} of {size_text(listed.stage_bytes)}"
        f", {size_text(listed.unpublished_bytes)} of them of no epoch yet"
    )


def _listed(gateway: GatewayConnection) -> r.Listed:
    from medusa.spark.exchange import requests as r
    from medusa.spark.exchange.caller import expected

    return expected(gateway.ask(r.Listing(number=0))[0], r.Listed)


def _tables(listed: r.Listed) -> Iterator[Any]:
    from rich.markup import escape
    from rich.table import Table
    from rich.text import Text

    def table(title: str, *columns: str) -> Table:
        made = Table(title=title, title_justify="left", box=None, pad_edge=False)
        for column in columns:
            texts = column in ("stream", "reader", "source", "writer", "why")
            made.add_column(column, justify="left" if texts else "right", overflow="fold")
        return made

    readers = table("readers", "stream", "reader", "rows from", "to", "unread", "kept", "silent", "why")
    for each in listed.readers:
        numbers = ("?", "?", "?")
        if each.known:
            numbers = (f"{each.earliest:,}", f"{each.latest:,}", f"{each.latest - each.read:,}")
        why = "the stream has ended" if each.ended else each.why
        if each.missing:
            why = f"{each.missing:,} rows are missing: the node no longer had them; {why}".rstrip("; ")
        if each.gone:
            why = f"it began with row {each.gone:,}: those before were gone; {why}".rstrip("; ")
        kept = f"{size_text(each.nbytes)} of {size_text(listed.spool_bytes)}"
        silent = duration_text(each.silent_s * 1_000_000)
        readers.add_row(escape(each.stream), escape(each.reader), *numbers, kept, silent, escape(why))
    sources = table("sources", "source", "rows published", "waiting", "why")
    for source in listed.sources:
        sources.add_row(
            escape(source.stream), f"{source.published:,}", f"{source.waiting:,}", escape(source.why)
        )
    writers = table("writers", "writer", "source", "last epoch")
    for writer in listed.writers[:_SHOWN]:
        writers.add_row(escape(writer.writer), escape(writer.stream), f"{writer.epoch:,}")
    if len(listed.writers) > _SHOWN:
        writers.add_row(f"and {len(listed.writers) - _SHOWN:,} before them (--json)", "", "")
    found = [each for each in (readers, sources, writers) if each.row_count]
    yield from found
    if not found:
        yield Text("nobody reads or writes here")


@click.command(
    epilog=example(
        "medusa gateway forget netmon.flows --reader old_report --gateway tcp://127.0.0.1:7777",
        "medusa gateway forget netmon.rows --source --gateway tcp://127.0.0.1:7777",
    )
)
@click.argument("stream")
@click.option("--reader", metavar="NAME", help="end this reader of STREAM  [default: spark]")
@click.option("--source", is_flag=True, help="STREAM is a source that was written to: forget its numbers")
@click.option("--drop-waiting", is_flag=True, help="with --source: give up rows that wait for it")
@_asking
def forget(
    stream: str,
    reader: str | None,
    source: bool,
    drop_waiting: bool,
    endpoint: str,
    timeout: str,
    as_json: bool,
    **keys: Any,
) -> None:
    """End a reader of STREAM for good, or a source that was written to, at a gateway and at its node.

    Of a reader what is kept goes, and the node keeps nothing for it any more; a query that still reads under
    the name fails. With --source rows into STREAM are numbered from 0 again: for one that was undeployed, or
    deployed anew. Writers are remembered: no epoch is published twice by that.
    """
    from medusa.spark.exchange import requests as r
    from medusa.spark.exchange.caller import expected

    if source and reader is not None:
        raise DataError("--source and --reader: leave one out", code="data.argument")
    if drop_waiting and not source:
        raise DataError("--drop-waiting goes with --source", code="data.argument")
    name = reader or "spark"
    asked: r.Request = r.Forget(number=0, stream=stream, reader=name)
    if source:
        asked = r.Drop(number=0, stream=stream, waiting=drop_waiting)
    with _called(endpoint, timeout, **keys) as gateway:
        if not expected(gateway.ask(asked)[0], r.Done).fresh:
            raise _unknown(_listed(gateway), stream, None if source else name)
    told = {"stream": stream, "source": True} if source else {"stream": stream, "reader": name}
    what = f"source {stream}" if source else f"reader {name} of {stream}"
    click.echo(json.dumps(told) if as_json else f"{what} is forgotten")


@click.command(epilog=example("medusa gateway finish netmon.rows --gateway tcp://127.0.0.1:7777"))
@click.argument("stream")
@_asking
def finish(stream: str, endpoint: str, timeout: str, as_json: bool, **keys: Any) -> None:
    """End the source STREAM, once all that Spark has published into it is at its node.

    No more rows come into it from here; its windows close when all others who publish there have ended too.
    """
    from medusa.spark.exchange import requests as r
    from medusa.spark.exchange.caller import expected

    with _called(endpoint, timeout, **keys) as gateway:
        expected(gateway.ask(r.Finish(number=0, stream=stream))[0], r.Done)
    click.echo(json.dumps({"stream": stream}) if as_json else f"source {stream} is finished")


def _unknown(listed: r.Listed, stream: str, reader: str | None) -> LinkError:
    if reader is None:
        known = [each.stream for each in listed.sources]
        return LinkError(
            f"nobody writes to {stream!r} here", hint=did_you_mean(stream, known), code="E_WRITER"
        )
    names = sorted({each.reader for each in listed.readers if each.stream == stream})
    if names:
        return LinkError(
            f"nobody reads {stream!r} as {reader!r} here",
            hint=f"--reader: it is read as {', '.join(names[:20])}",
            code="E_READER",
        )
    return LinkError(
        f"nobody reads {stream!r} here",
        hint=did_you_mean(stream, [each.stream for each in listed.readers]),
        code="E_READER",
    )
