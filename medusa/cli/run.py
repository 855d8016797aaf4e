"""``medusa run``: what its options mean."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from medusa.cli.options.query_file import query_of, read_text
from medusa.cli.signals import sigterm_interrupts
from medusa.errors import DataError, DeadRowWarning, LateWarning, QueryError
from medusa.io.formats import FORMATS, FORMATS_IN_WORDS, FORMATS_OF_LINES
from medusa.io.places import FilePlace, check_apart, delimiter_of, place_of, split_named
from medusa.query.suggest import did_you_mean

if TYPE_CHECKING:
    from medusa.io.job import SourceInput
    from medusa.query.builder import Query

__all__ = ["column_types", "run"]

EXAMPLES = """\b
Example:
  medusa run query.sql --input cars=cars.parquet --output counts.csv
  medusa run "SELECT seg, count(*) AS n FROM cars
              GROUP BY seg, TUMBLE(ts, INTERVAL '1' MINUTE)" --input cars.csv
  tail -f log.jsonl | medusa run query.sql --input log=-:jsonl --follow"""


HELP = f"""Run a query over files, or over what comes on standard input.

QUERY is a file (.sql, or .json as q.to_json() writes it), or the text of a query. Files are
{FORMATS_IN_WORDS}; {FORMATS_OF_LINES} also .gz. They are read in batches, merged by time.
docs/sql.md describes SQL, docs/run.md this command.
"""


@click.command(epilog=EXAMPLES, help=HELP)
@click.argument("query")
@click.option(
    "--input",
    "-i",
    "inputs",
    multiple=True,
    required=True,
    metavar="[NAME=]FILE[:FORMAT]",
    help="rows of a source; - is standard input; NAME is by default that of the file",
)
@click.option(
    "--output",
    "-o",
    "outputs",
    multiple=True,
    metavar="[SINK=]FILE[:FORMAT]",
    help="where the rows of a sink go; - is standard output  [default: - as csv]",
)
@click.option("--format", type=click.Choice(FORMATS), help="of files whose name doesn't tell")
@click.option(
    "--time", "times", multiple=True, metavar="[NAME=]COLUMN", help="the column that holds the time"
)
@click.option(
    "--unit", "units", multiple=True, metavar="[NAME=]UNIT", help="s, ms, us or ns, of an integer time"
)
@click.option(
    "--slack",
    "slacks",
    multiple=True,
    metavar="[NAME=]DURATION",
    help="how late rows may be  [default: measured in files; 0 of standard input and with --follow]",
)
@click.option(
    "--schema",
    "schemas",
    multiple=True,
    metavar="[NAME=]COLUMN TYPE, ...",
    help="types of columns of CSV and JSON; the others are told from the first rows",
)
@click.option(
    "--delimiter",
    "delimiters",
    multiple=True,
    metavar="[NAME=]CHARACTER",
    help="what stands between the fields of CSV, read and written, or of one source or sink  [default: ,]",
)
@click.option(
    "--follow", is_flag=True, help="go on as the files grow; Ctrl-C ends, open windows stay unwritten"
)
@click.option(
    "--on-error",
    type=click.Choice(["dead", "stop"]),
    default="dead",
    show_default=True,
    help="leave out and count rows on which an expression fails, or stop",
)
@click.option("--explain", is_flag=True, help="say what the query does, and run nothing")
@click.option("--json", "as_json", is_flag=True, help="at the end, one JSON document of rows and seconds")
@click.option("--quiet", "-q", is_flag=True, help="no progress")
def run(
    query: str, *, explain: bool, as_json: bool, quiet: bool, follow: bool, on_error: str, **given: Any
) -> None:
    from medusa.io.job import FileJob

    asked, inputs = _prepared(query, given, follow)
    try:
        if explain:
            click.echo(asked.explain())
            return
        outputs = _outputs(asked, given["outputs"], given["format"])
        outputs = _delimited(given["delimiters"], outputs, inputs)
        check_apart({name: each.place for name, each in inputs.items()}, outputs)
        to_standard = any(place.standard for place in outputs.values())
        with warnings.catch_warnings(), sigterm_interrupts():
            warnings.simplefilter("always", UserWarning)
            warnings.showwarning = lambda message, *_, **__: click.echo(
                f"warning: {_warned(message)}", err=True
            )
            job = FileJob(asked, inputs, outputs, follow=follow, on_error=on_error)
            told = job.run(progress=not quiet and not (to_standard and sys.stdout.isatty()))
    finally:
        for each in inputs.values():
            each.reader.close()
    _tell(told, as_json=as_json, quiet=quiet, to_standard=to_standard)


def _warned(message: Warning | str) -> str:
    """A warning in the words of the command line, which has no ``stats()`` and no ``dead()``."""
    text = str(message)
    if isinstance(message, LateWarning):
        return f"{text.rpartition('; slack=')[0]}; --slack {message.source}={message.slack} keeps it"
    if isinstance(message, DeadRowWarning):
        return f"{text.rpartition(' (stats()')[0]} (--json counts them, --on-error stop ends the run)"
    return text


def _tell(told: dict[str, Any], *, as_json: bool, quiet: bool, to_standard: bool) -> None:
    if as_json:
        click.echo(json.dumps(told), err=to_standard)
    elif not quiet and not to_standard:
        rows = sum(each["rows"] for each in told["inputs"].values())
        for sink, made in told["outputs"].items():
            click.echo(f"{sink}: {made['rows']:,} rows in {made['to']}", err=True)
        click.echo(f"{rows:,} rows read in {told['seconds']:.2f} s", err=True)


# -- the query and what it reads ------------------------------------------------------------------


def _prepared(query: str, given: Mapping[str, Any], follow: bool) -> tuple[Query, dict[str, SourceInput]]:
    """The query, and an open reader for each of its sources."""
    from medusa.io.job import SourceInput
    from medusa.io.readers import open_reader
    from medusa.query.boxes import Source
    from medusa.query.shape import types_of

    text, name, is_json = _text(query)
    ready = query_of(text, query) if is_json else None
    known = {}
    if ready is not None:
        known = {box.id: types_of(box.schema) for box in ready.graph.boxes if isinstance(box, Source)}
        for option in ("times", "units", "slacks"):
            if given[option]:
                raise QueryError(
                    f"{query} says the time of its sources: leave --{option[:-1]} out", code="query.file"
                )
    places = _places(given["inputs"], given["format"], list(known))
    places = _delimited(given["delimiters"], places, None)
    for each in known:
        if each not in places:
            raise DataError(
                f"source {each!r} has no --input", hint=f"--input {each}=FILE", code="data.source"
            )
    types = {each: column_types(value) for each, value in _named("schema", given["schemas"], places).items()}
    inputs: dict[str, SourceInput] = {}
    try:
        for each, place in places.items():
            said = types.get(each, {})
            reader = open_reader(place, types=said, known=known.get(each), follow=follow)
            inputs[each] = SourceInput(place, reader, said)
        return (ready if ready is not None else _from_sql(text, name, given, inputs)), inputs
    except BaseException:
        for opened in inputs.values():
            opened.reader.close()
        raise


def _text(query: str) -> tuple[str, str, bool]:
    """(text, name, whether it is JSON) of a file or of a text."""
    path = Path(query)
    try:
        found = path.is_file()
    except (OSError, ValueError):
        found = False
    if not found:
        if query.strip() and any(letter.isspace() for letter in query.strip()):
            return query, "sql", False
        raise QueryError(
            f"{query[:200]}: there is no such file",
            hint="a .sql or .json file, or the text of a query",
            code="query.file",
        )
    text = read_text(path)
    stem = "".join(
        letter if letter.isascii() and (letter.isalnum() or letter in "_-") else "_" for letter in path.stem
    )
    name = stem[:64] if stem[:1].isalpha() or stem[:1] == "_" else f"q_{stem}"[:64]
    return text, name, path.suffix.lower() == ".json"


def _from_sql(text: str, name: str, given: Mapping[str, Any], inputs: Mapping[str, SourceInput]) -> Query:
    from medusa.query.sql.sources import SourceSpec
    from medusa.query.sql.statements import sql

    options: dict[str, dict[str, Any]] = {each: {} for each in inputs}
    for option, key in (("times", "time"), ("units", "unit"), ("slacks", "slack")):
        for each, value in _named(key, given[option], inputs).items():
            options[each][key] = value
    sources: dict[str, Any] = {
        each: SourceSpec(one.reader.schema, options[each]) for each, one in inputs.items()
    }
    try:
        made = sql(text, name=name, **sources)
    except QueryError as error:
        hint = _hint_here(error, text, inputs)
        if hint == error.hint:
            raise
        raise QueryError(error.message, hint=hint, code=error.code) from error
    read = {arc.box for box in made.graph.boxes for arc in box.inputs}
    for each in inputs:
        if each not in read:
            raise QueryError(f"--input {each}: the query doesn't read it", code="query.source")
    return made


def _hint_here(error: QueryError, text: str, inputs: Mapping[str, SourceInput]) -> str:
    """What to do about an error of a query on the command line."""
    if error.code == "query.untimed":
        return _time_hint(text, inputs)
    if error.code == "query.unit":
        return "--unit [NAME=]s, or ms, us, ns"
    if error.code == "query.column":
        for column in sorted({each for one in inputs.values() for each in one.reader.passed_by}):
            if f"no column {column!r}" in error.message:
                return f"{column!r} holds objects or lists, which are passed by"
    return error.hint


def _time_hint(text: str, inputs: Mapping[str, SourceInput]) -> str:
    """How to say the time on the command line, of the first input that has no time."""
    import pyarrow.types as kinds

    from medusa.query.sql.read import statements
    from medusa.query.sql.sources import time_columns

    wanted = dict.fromkeys([*time_columns(statements(text)[1]), "ts"])
    for name, one in inputs.items():
        for column in (each for each in wanted if each in one.reader.schema.names):
            type = one.reader.schema.field(column).type
            if kinds.is_integer(type):
                return f"--time {name}={column} --unit {name}=s, or ms, us, ns"
            if kinds.is_string(type):
                return f'{column!r} came as text; --schema "{name}={column} timestamp" names the line'
    return " or ".join(f"--time {name}=COLUMN" for name in list(inputs)[:3])


def _places(texts: Iterable[str], format: str | None, sources: list[str]) -> dict[str, FilePlace]:
    places: dict[str, FilePlace] = {}
    for text in texts:
        place = place_of(text, format=format)
        name = place.name or (sources[0] if len(sources) == 1 else "")
        if not name and not place.standard:
            name = place.stem
        if not name.isidentifier():
            raise DataError(
                f"--input {text}: which source is it?", hint=f"--input name={text}", code="data.source"
            )
        if name in places:
            raise DataError(f"--input: {name!r} stands twice", code="data.source")
        if sources and name not in sources:
            raise DataError(
                f"--input: the query has no source {name!r}",
                hint=did_you_mean(name, sources),
                code="data.source",
            )
        places[name] = place
    if sum(place.standard for place in places.values()) > 1:
        raise DataError("--input: there is one standard input", code="data.source")
    return places


def _named(option: str, texts: Iterable[str], known: Mapping[str, Any]) -> dict[str, str]:
    """``name=value``; without a name it is meant for all sources."""
    found: dict[str, str] = {}
    for text in texts:
        name, value = split_named(text)
        if name and name not in known:
            raise DataError(
                f"--{option} {text}: there is no input {name!r}",
                hint=did_you_mean(name, known),
                code="data.source",
            )
        for each in [name] if name else known:
            found[each] = value
    return found


def _delimited(
    texts: Iterable[str], places: dict[str, FilePlace], inputs: Mapping[str, SourceInput] | None
) -> dict[str, FilePlace]:
    """The places with what stands between their fields.

    Args:
        inputs: where ``places`` are the outputs: then every name must be one of either.

    Raises:
        DataError: no such character, source or sink, or one that isn't CSV.
    """
    said = {name: delimiter_of(value) for name, value in map(split_named, texts)}
    if inputs is not None:
        every = places | {name: each.place for name, each in inputs.items()}
        for name in said:
            if name and name not in every:
                raise DataError(
                    f"--delimiter: there is no source or sink {name!r}",
                    hint=did_you_mean(name, every),
                    code="data.source",
                )
            if not any(place.format == "csv" for each, place in every.items() if name in ("", each)):
                raise DataError(
                    f"--delimiter: {name!r} is no CSV" if name else "--delimiter: nothing here is CSV",
                    hint="the other formats have none",
                    code="data.format",
                )
    default = said.get("", ",")
    return {name: replace(place, delimiter=said.get(name, default)) for name, place in places.items()}


def column_types(text: str) -> dict[str, str]:
    """``ts timestamp, k int64``; a comma in brackets belongs to the type."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "([") - (letter in ")]")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    found = {}
    for part in parts:
        name, _, type = part.strip().replace(":", " ", 1).partition(" ")
        if not name or not type.strip():
            raise DataError(
                f"--schema: {part.strip()[:60]!r} is no column with its type",
                hint='--schema "ts timestamp, k int64"',
                code="data.schema",
            )
        found[name] = type.strip()
    return found


def _outputs(query: Query, texts: Iterable[str], format: str | None) -> dict[str, FilePlace]:
    sinks, found = list(query.sinks), {}
    for text in texts:
        place = place_of(text, format=format or ("csv" if split_named(text)[1] == "-" else None))
        name = place.name
        if not name:
            if len(sinks) > 1:
                raise DataError(
                    f"--output {text}: the query has the sinks {', '.join(sinks)}",
                    hint=f"--output {sinks[0]}={text}",
                    code="data.sink",
                )
            name = sinks[0]
        if name not in sinks:
            raise DataError(
                f"--output: the query has no sink {name!r}", hint=did_you_mean(name, sinks), code="data.sink"
            )
        if name in found:
            raise DataError(f"--output: {name!r} stands twice", code="data.sink")
        if place.packed:
            raise DataError(
                f"--output {text}: output isn't compressed",
                hint="leave .gz out, or write to - and pipe that into gzip",
                code="data.format",
            )
        found[name] = place
    left = [sink for sink in sinks if sink not in found]
    if left and not found and len(sinks) == 1:
        found[left[0]] = FilePlace(left[0], "-", format or "csv")
    elif left:
        raise DataError(
            f"sink {left[0]!r} has no --output", hint=f"--output {left[0]}=FILE", code="data.sink"
        )
    standard = [name for name, place in found.items() if place.standard]
    if len(standard) > 1:
        raise DataError("--output: there is one standard output", code="data.sink")
    return found
