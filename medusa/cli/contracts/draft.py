"""``medusa contract draft``: terms to be looked through, filled in and proposed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from medusa.cli.contracts.common import moment, now_us
from medusa.cli.options.command_options import FILE, OUT_FILE, example
from medusa.errors import ConfigError, ContractError
from medusa.units import duration_us

if TYPE_CHECKING:
    from medusa.query.structs import Schema

__all__ = ["draft"]

MINUTE_US = 60_000_000
PERIOD, NOTICE = "365d", "7d"
MOMENT = "DATE|TIME"


@click.command(
    epilog=example(
        "medusa contract draft --provider acme --consumer bigco --price 0.02 --range 0.004 -o terms.toml",
        "medusa contract draft --query clicks.json --sink out --provider acme --consumer bigco \\",
        "    --price 5 --per gigabyte -o clicks.odcs.yaml",
    )
)
@click.option("--provider", required=True, help="runs the load, or gives the rows, and is paid")
@click.option("--consumer", required=True, help="has the load, or takes the rows, and pays")
@click.option(
    "--contract",
    "name",
    help="its name between the two  [default: CONSUMER-at-PROVIDER, with --query CONSUMER-from-PROVIDER]",
)
@click.option("--currency", default="EUR", show_default=True)
@click.option("--price", required=True, help="of a unit: a core-second, with --query what --per says")
@click.option("--range", "width", default="0", show_default=True, help="so much less a unit may cost")
@click.option("--load", "most", default="1", show_default=True, help="most units a second")
@click.option("--begins", metavar=MOMENT, help="it counts from then on  [default: this minute]")
@click.option(
    "--ends", metavar=MOMENT, help="it counts until before then; 2026-12-01 or 2026-12-01T08:00:00Z"
)
@click.option("--period", help=f"instead of --ends: how long it counts  [default: {PERIOD}]")
@click.option(
    "--notice",
    help=f"who revokes it says so this long before  [default: {NOTICE}, none where it counts for less]",
)
@click.option("--query", type=FILE, help="JSON of a query: a contract about rows of one of its sinks")
@click.option("--sink", help="the sink; may be left out where there is one")
@click.option("--columns", help="with --query, the columns that are sold: ts,n  [default: all]")
@click.option(
    "--per",
    default="row",
    show_default=True,
    help="with --query, what the price is of: nodes count row, minute, hour, day",
)
@click.option("--output", "-o", type=OUT_FILE, help="the file to write  [default: standard output]")
def draft(
    query: Path | None,
    output: Path | None,
    begins: str | None,
    ends: str | None,
    period: str | None,
    notice: str | None,
    **given: Any,
) -> None:
    """Write terms to be looked through, filled in and proposed.

    About load: TOML. With --query about the rows of a sink: a file of the Open Data Contract Standard.
    """
    given["counts_us"] = counts_us = _period(begins, ends, period)
    given["notice"] = _notice(notice, counts_us)
    text = _draft_of_load(**given) if query is None else _draft_of_content(query, **given)
    if output is None:
        click.echo(text, nl=False)
        return
    from medusa.runtime.keys.key_files import PUBLIC_MODE, write_new

    write_new(output, text, PUBLIC_MODE)
    click.echo(f"the terms are in {output}: look them through, then medusa contract propose")


def _period(begins: str | None, ends: str | None, period: str | None) -> tuple[int, int]:
    """From when to before when it counts.

    Raises:
        ConfigError: one is no time, or it would count for no time that is still to come.
    """
    at_us = now_us()
    begins_us = at_us // MINUTE_US * MINUTE_US if begins is None else _moment(begins, "--begins")
    if ends is None:
        counts_us = duration_us(period or PERIOD, what="--period", minimum_us=1, error=ConfigError)
        ends_us, said = begins_us + counts_us, "--period"
    elif period is not None:
        raise click.UsageError("--ends and --period both say when it ends: give one of them")
    else:
        ends_us, said = _moment(ends, "--ends"), "--ends"
    least_us, what = max((begins_us, "its begin"), (at_us, "now"))
    if ends_us <= least_us:
        raise ConfigError(
            f"{said}: expected an end after {what}, {moment(least_us)}, got {moment(ends_us)}",
            hint=f"give a later {said}" + (", or an earlier --begins" if least_us > at_us else ""),
            code="contract.period",
        )
    return begins_us, ends_us


def _moment(text: str, what: str) -> int:
    from medusa.runtime.contracts.terms_fields import date_or_time, time_us

    try:
        return time_us(date_or_time(text))
    except (ContractError, ValueError):
        raise ConfigError(
            f"{what}: expected a date, or a time with its zone, after 1970, got {text!r:.80}",
            hint=f"write {what} 2026-12-01 (its midnight, UTC) or {what} 2026-12-01T08:00:00Z",
            code="contract.period",
        ) from None


def _notice(given: str | None, counts_us: tuple[int, int]) -> str:
    """As it is given, or what is usual if that is shorter than the contract."""
    if given is not None:
        return given
    return NOTICE if duration_us(NOTICE, what="--notice") < counts_us[1] - counts_us[0] else "0s"


def _draft_of_load(
    *,
    provider: str,
    consumer: str,
    name: str | None,
    currency: str,
    price: str,
    width: str,
    most: str,
    counts_us: tuple[int, int],
    notice: str,
    **_: Any,
) -> str:
    from medusa.runtime.contracts.terms_document import read_terms, terms_text
    from medusa.runtime.contracts.terms_fields import time_text, toml_text

    begins_us, ends_us = counts_us
    fields = {
        "contract": name or f"{consumer}-at-{provider}",
        "provider": provider,
        "consumer": consumer,
        "notice": notice,
    }
    lines = [f"{key} = {toml_text(value)}" for key, value in fields.items()]
    lines += [f"begins = {time_text(begins_us)}", f"ends = {time_text(ends_us)}"]
    lines += ["[price]", f"currency = {toml_text(currency)}", f"amount = {toml_text(price)}"]
    lines += [f"range = {toml_text(width)}", "[load]", f"most = {toml_text(f'{most} units/s')}"]
    return terms_text(read_terms("\n".join(lines), "the draft"))


def _draft_of_content(
    query: Path,
    *,
    provider: str,
    consumer: str,
    name: str | None,
    currency: str,
    price: str,
    counts_us: tuple[int, int],
    notice: str,
    sink: str | None,
    columns: str | None,
    per: str,
    **_: Any,
) -> str:
    from medusa.cli.options.query_file import read_query
    from medusa.market.money import micro_of
    from medusa.nodes.market.content_terms import ContentTerms
    from medusa.query.boxes import Sink, Source
    from medusa.query.graph import check_graph
    from medusa.query.suggest import did_you_mean
    from medusa.runtime.contracts.content import content_text, read_content

    asked = read_query(query)
    sinks = {box.id: box for box in asked.graph.boxes if isinstance(box, Sink)}
    if sink is None and len(sinks) == 1:
        (sink,) = sinks
    if sink not in sinks:
        text = f"--sink is {sink!r}: query {asked.name!r} has no such sink" if sink else "--sink is missing"
        raise ConfigError(text, hint=did_you_mean(sink or "", sinks), code="contract.sink")
    begins_us, ends_us = counts_us
    schema = check_graph(asked.graph).shapes[sinks[sink].inputs[0]].schema
    times = {box.time for box in asked.graph.boxes if isinstance(box, Source)}
    if columns is not None:
        schema = _some_columns(schema, columns)
    terms = ContentTerms(
        id=name or f"{consumer}-from-{provider}",
        version=1,
        provider=provider,
        consumer=consumer,
        begins_us=begins_us,
        ends_us=ends_us,
        notice_s=duration_us(notice, what="--notice", error=ConfigError) // 1_000_000,
        streams={f"{asked.name}.{sink}": schema},
        price_micro=micro_of(price, what="--price"),
        price_unit=per,
        currency=currency,
        latency_us=0,
        availability_ppm=0,
    )
    made = content_text(terms, time=next((each.name for each in schema if each.name in times), None))
    read_content(made, "the draft")
    return made


def _some_columns(schema: Schema, columns: str) -> Schema:
    """Those that are named, as they stand in the stream."""
    from medusa.query.suggest import did_you_mean

    known, wanted = [field.name for field in schema], [each.strip() for each in columns.split(",")]
    for name in wanted:
        if name not in known:
            text = f"--columns: the sink has no column {name!r}"
            raise ConfigError(text, hint=did_you_mean(name, known), code="contract.columns")
    return tuple(field for field in schema if field.name in wanted)
