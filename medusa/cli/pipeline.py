"""``medusa pipeline``: archives made, checked against what a stream answered, summed up, replayed."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from medusa.cli.options.command_options import AS_JSON, FILE, FOLDER, NODE, example
from medusa.cli.options.key_options import key_options
from medusa.cli.options.query_file import read_query
from medusa.errors import DataError
from medusa.units import duration_us

if TYPE_CHECKING:
    from medusa.apps.pipeline.folder import Stored

__all__ = [
    "new_folder",
    "period_of",
    "pipeline",
    "prepare",
    "prepare_options",
    "prepared",
    "shown",
    "spark_options",
    "spark_session",
    "told_of",
]

Command = TypeVar("Command", bound=Callable[..., Any])

_OUT = click.option("--out", required=True, type=FOLDER, metavar="FOLDER", help="a new folder")
_REPLACE = click.option("--replace", is_flag=True, help="write it again, where there is one")


@click.group()
def pipeline() -> None:
    """Archives on Spark: make them, validate answers, sum them up, replay them."""


@pipeline.group()
def prepare() -> None:
    """Make an archive: partitioned Parquet with positions."""


def spark_options(command: Command, masters: str = "local[N], spark://host:port, sc://host:port") -> Command:
    """Where Spark runs."""
    for option in (
        click.option("--quiet", "-q", is_flag=True, help="no progress"),
        click.option("--memory", default="1g", show_default=True, help="of Spark's driver"),
        click.option(
            "--master",
            metavar="URL",
            help=f"{masters}  [default: all cores of this machine]",
        ),
    ):
        command = option(command)
    return command


def prepare_options(command: Command) -> Command:
    """What every ``medusa pipeline prepare`` takes; goes to ``prepared``."""
    period = click.option("--period", metavar="DURATION", help="the range of time of a file, such as 1min")
    for option in (AS_JSON, spark_options, _REPLACE, period, _OUT):
        command = option(command)
    return command


def prepared(
    what: Any,
    *,
    out: Path,
    period: str | None,
    replace: bool,
    master: str | None,
    memory: str,
    quiet: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Make the archive of a workload, or of a trace, and say what it holds."""
    from medusa.apps.pipeline.prepare import prepare

    period_of(period)
    new_folder(out)
    with spark_session(master, memory) as spark, shown(quiet=quiet) as tell:
        stored = prepare(what, spark, out, period=period, replace=replace, progress=tell, **options)
    told_of(stored, as_json=as_json)


def period_of(text: str | None, option: str = "--period", minimum_us: int = 1_000_000) -> None:
    """Look at a duration before Spark is started.

    Raises:
        DataError: it is none, or too short.
    """
    if text is not None:
        duration_us(text, what=option, minimum_us=minimum_us, error=DataError)


def new_folder(out: Path) -> None:
    """Look before Spark is started whether the folder can be made.

    Raises:
        DataError: it is a file, or in one; or it can't be written where it shall be.
    """
    there = next(each for each in (out.absolute(), *out.absolute().parents) if each.exists())
    if not there.is_dir() or not os.access(there, os.W_OK):
        why = "can't be written" if there.is_dir() else "is no folder"
        raise DataError(f"--out {out}: {there} {why}", hint="name a new folder", code="data.archive")


def told_of(stored: Stored, *, as_json: bool) -> None:
    told = stored.manifest.to_json()
    if as_json:
        click.echo(json.dumps({"folder": str(stored.path)} | told))
        return
    click.echo(
        f"{stored.path}: {told['stream']}, {told['rows']:,} rows in {told['files']:,} files, "
        f"{told['bytes']:,} bytes" + ("" if told["complete"] else "; more may come")
    )
    begins = stored.manifest.made.get("from_row")
    if isinstance(begins, int) and begins > 0:
        click.echo(
            f"it begins with row {begins:,} of the stream: those before were not asked for, or not kept"
        )
    if told["missing_rows"]:
        click.echo(f"{told['missing_rows']:,} rows within were lost, which --accept-loss took")


@prepare.command(
    "trace",
    epilog=example(
        'medusa pipeline prepare trace cars.csv --schema "ts timestamp, seg int64" --out cars',
        "medusa pipeline prepare trace cars.parquet --query tolls.json --out cars",
    ),
)
@click.argument("file", type=click.Path(exists=True, path_type=Path))
@click.option(
    "--schema", metavar="COLUMN TYPE, ...", help="the columns that are kept  [default: of Parquet: all]"
)
@click.option("--time", default="ts", show_default=True, help="the column that holds the time; - for none")
@click.option("--unit", type=click.Choice(["s", "ms", "us", "ns"]), help="of a time that is an integer")
@click.option("--query", "query_file", type=FILE, help="take columns and time from a source of this query")
@click.option("--source", help="which, where the query has several")
@click.option("--stream", help="the name of the stream  [default: that of the source or file]")
@click.option(
    "--order",
    type=click.Choice(["time", "file"]),
    default="time",
    show_default=True,
    help="positions by time, or as the rows stand in the files",
)
@prepare_options
def prepare_trace(file: Path, schema: str | None, time: str, query_file: Path | None, **options: Any) -> None:
    """Make an archive of your own CSV or Parquet, a file or a folder of them.

    Values are cast to the declared types; one that doesn't fit stops it, with its column.
    """
    from medusa.cli.run import column_types

    types = None if schema is None else column_types(schema)
    query = None if query_file is None else read_query(query_file)
    prepared(file, schema=types, time=None if time == "-" else time, query=query, **options)


@pipeline.command(
    epilog=example(
        "medusa pipeline validate netmon.json --archive flows --answers both=both.parquet",
        "medusa pipeline validate netmon.json --archive flows --answers answers --floats 1e-9 --json",
    )
)
@click.argument("query", type=FILE)
@click.option(
    "--archive",
    "archives",
    multiple=True,
    required=True,
    metavar="[SOURCE=]FOLDER",
    help="rows of a source; or one folder with all in it",
)
@click.option(
    "--answers",
    "answers",
    multiple=True,
    required=True,
    metavar="[SINK=]PLACE",
    help="what the stream answered: an archive, a Parquet file, or one folder with all in it",
)
@click.option("--until", metavar="TIME", help="only windows that ended by then: of a stream that still runs")
@click.option("--floats", type=float, default=0.0, show_default=True, help="tolerance; 0: bit for bit")
@click.option("--examples", type=click.IntRange(0, 1000), default=5, show_default=True, help="of each sink")
@click.option("--any-order", is_flag=True, help="don't compare the order of numbered answers")
@click.option("--stats", type=FILE, help="Parquet of run.stats(), of a run that may have shed rows")
@spark_options
@AS_JSON
def validate(
    query: Path,
    archives: tuple[str, ...],
    answers: tuple[str, ...],
    until: str | None,
    floats: float,
    examples: int,
    any_order: bool,
    stats: Path | None,
    master: str | None,
    memory: str,
    quiet: bool,
    as_json: bool,
) -> None:
    """Compute a query again over an archive, and compare with what the stream answered, row by row.

    QUERY is a file as q.to_json() writes it. Answers that are an archive are numbered: then their order is
    compared too. Exit code 1: something differs, or couldn't be compared.
    """
    from medusa.apps.pipeline.validate import validate

    asked = read_query(query)
    rows, given = _places("--archive", archives), _places("--answers", answers)
    with spark_session(master, memory) as spark, shown(quiet=quiet) as tell:
        report = validate(
            asked,
            spark,
            archive=rows,
            answers=given,
            until=until,
            floats=floats,
            examples=examples,
            any_order=any_order,
            stats=stats,
            progress=tell,
        )
    click.echo(json.dumps(report.to_json()) if as_json else str(report))
    if not report.equal:
        sys.exit(1)


@pipeline.command(
    epilog=example(
        "medusa pipeline history netmon.json --archive flows --out daily --by src --period 1d --column bytes"
    )
)
@click.argument("query", type=FILE)
@click.option(
    "--archive",
    "archives",
    multiple=True,
    required=True,
    metavar="[SOURCE=]FOLDER",
    help="rows of a source; or one folder with all in it",
)
@_OUT
@click.option("--of", help="a source, or a sink that is computed first  [default: the only source]")
@click.option(
    "--by", "keys", multiple=True, metavar="[NAME=]EXPRESSION", help="a key: a column, or made of some"
)
@click.option("--period", default="1d", show_default=True, help="such as 1h; all: one row for each key")
@click.option("--column", "columns", multiple=True, help="a number to sum up")
@click.option(
    "--quantile", "quantiles", multiple=True, type=click.FloatRange(0, 1), help="of these, such as 0.99"
)
@click.option("--exact", is_flag=True, help="exact quantiles; else within 0.4 %")
@_REPLACE
@spark_options
@AS_JSON
def history(
    query: Path,
    archives: tuple[str, ...],
    out: Path,
    keys: tuple[str, ...],
    period: str,
    master: str | None,
    memory: str,
    quiet: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Statistics of an archive per key and period, as Parquet that queries read as a table.

    QUERY is a file as q.to_json() writes it. Each column gives its sum, min, max, avg and quantiles.
    """
    from medusa.apps.pipeline.history import history
    from medusa.io.places import split_named

    asked = read_query(query)
    by = {name or text: text for name, text in map(split_named, keys)}
    rows = _places("--archive", archives)
    if period != "all":
        period_of(period, minimum_us=1)
    new_folder(out)
    with spark_session(master, memory) as spark, shown(quiet=quiet) as tell:
        stored = history(
            asked,
            spark,
            archive=rows,
            out=out,
            by=by,
            period=None if period == "all" else period,
            progress=tell,
            **options,
        )
    told_of(stored, as_json=as_json)


@pipeline.command(
    epilog=example(
        "medusa pipeline replay flows netmon.flows --node tcp://127.0.0.1:5555 --speed 60x",
        "medusa pipeline replay flows netmon.flows --node tcp://127.0.0.1:5555 --durable archive/7",
    )
)
@click.argument("folder", type=FOLDER)
@click.argument("stream")
@NODE
@key_options
@click.option(
    "--speed",
    default="max",
    show_default=True,
    metavar="Nx|max",
    help="1x is real time, 60x a minute in a second",
)
@click.option(
    "--from", "start", type=click.IntRange(min=0), default=0, show_default=True, help="the first position"
)
@click.option(
    "--durable", metavar="NAME", help="publish under a name: goes on by itself, each row counts once"
)
@click.option("--finish", is_flag=True, help="at the end say that no more rows come: windows close")
@click.option("--quiet", "-q", is_flag=True, help="no progress")
@AS_JSON
def replay(
    folder: Path,
    stream: str,
    address: str,
    key: str | None,
    server_key: str | None,
    speed: str,
    start: int,
    durable: str | None,
    finish: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """Publish the rows of an archive into STREAM (query.source) of a node, in order. It needs no Spark.

    With --durable the node remembers under NAME how many rows it has: started again, with the same archive,
    it goes on where it was, whatever died, and each row counts once. Without, it says with which --from it
    goes on when it is cut short, and rows that were under way may come twice.
    """
    import pyarrow as pa

    from medusa.apps.pipeline.folder import open_folder
    from medusa.apps.pipeline.replay import replay
    from medusa.runtime.client.client import connect

    if durable is not None and start:
        raise DataError("--durable knows where to go on: leave --from out", code="data.argument")
    stored, pace = open_folder(folder), _speed(speed)
    if not stored.manifest.rows:
        click.echo(f"warning: {folder} has no rows", err=True)
    columns = stored.manifest.columns
    streams = [columns.field(field.name) for field in stored.manifest.schema]
    # Columns that don't fit are refused before any row.
    none = pa.RecordBatch.from_pylist([], schema=pa.schema(streams))
    rows, following = 0, start
    ended = False
    with shown(quiet=quiet) as tell:

        def told(pushed: int, behind: int) -> None:
            nonlocal rows, following
            rows, following = pushed, behind
            if tell is not None:
                tell("replaying", pushed, stored.manifest.rows)

        try:
            with connect(address, key=key, server_key=server_key) as fed:
                if durable is not None:
                    with fed.publisher(stream, durable=durable) as out:
                        out.publish(none)
                        following = replay(stored, out.publish, speed=pace, row=out.next_row, progress=told)
                        if finish:
                            out.finish()
                else:

                    def push(batch: object) -> None:
                        fed.publish(stream, batch)

                    push(none)
                    following = replay(stored, push, speed=pace, start=start, progress=told)
                    if finish:
                        fed.finish(stream)
            ended = True
        finally:
            if not ended and rows:
                how = f"--from {following}" if durable is None else f"--durable {durable}"
                click.echo(f"{rows:,} rows were published; go on with {how}", err=True)
    result: dict[str, Any] = {"stream": stream, "rows": rows, "next": following}
    click.echo(json.dumps(result) if as_json else f"{rows:,} rows in {stream}; the next is {following}")


def _speed(text: str) -> float | None:
    """``10x``, ``0.5``; None for ``max``."""
    if text == "max":
        return None
    with contextlib.suppress(ValueError):
        found = float(text.removesuffix("x"))
        if 0 < found < float("inf"):
            return found
    raise DataError(f"--speed {text[:40]}: expected a number such as 10x, or max", code="data.argument")


def _places(option: str, texts: Sequence[str]) -> Any:
    """One place without a name, or places by name."""
    from medusa.io.places import split_named

    found: dict[str, str] = {}
    for name, value in map(split_named, texts):
        if not name and len(texts) > 1:
            raise DataError(
                f"{option} {value}: of which is it?", hint=f"{option} NAME={value}", code="data.source"
            )
        if name in found:
            raise DataError(f"{option}: {name!r} stands twice", code="data.source")
        if not Path(value).exists():  # Said before Spark is started.
            raise DataError(
                f"{option}: {value}: there is no such folder or file", hint=_NAMED, code="data.archive"
            )
        found[name] = value
    return found[""] if "" in found else _paths(found)


_NAMED = "a folder that medusa pipeline wrote, or a Parquet file; NAME=PLACE says of which source or sink"


def _paths(found: Mapping[str, str]) -> dict[str, Path]:
    return {name: Path(value) for name, value in found.items()}


@contextlib.contextmanager
def spark_session(master: str | None, memory: str) -> Iterator[Any]:
    """Spark; one that runs already in this program is used, and left as it is."""
    from medusa.spark.session import is_connect, running, session
    from medusa.spark.session_setup import quiet

    ours = running() is None
    java = ours and not (master or "").startswith("sc:")
    with quiet() if java else contextlib.nullcontext():
        # What goes wrong is told as one line.
        logs = {"spark.log.level": "OFF"} if java else {}
        spark = session(master or f"local[{os.cpu_count() or 1}]", memory=memory, conf=logs)
    if ours and not is_connect(spark):
        spark.sparkContext.setLogLevel("OFF")
    try:
        yield spark
    finally:
        if ours:
            spark.stop()


@contextlib.contextmanager
def shown(*, quiet: bool) -> Iterator[Callable[[str, int, int], object] | None]:
    """A bar on a terminal: what is being done, and how much of it."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("starting", total=None)

        def tell(what: str, done: int, of: int) -> None:
            bar.update(task, description=what, completed=done, total=of or None)

        yield tell
