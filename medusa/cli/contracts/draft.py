"""``medusa contract draft``: terms to be looked through, filled in and proposed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from medusa.cli.contracts.common import now_us
from medusa.cli.options.command_options import FILE, OUT_FILE, example
from medusa.errors import ConfigError
from medusa.units import TIME_UNITS_US, duration_us

__all__ = ["draft"]


@click.command(
    epilog=example(
        "medusa contract draft --provider acme --consumer bigco --price 0.02 --range 0.004 -o terms.toml",
        "medusa contract draft --query clicks.json --sink out --provider acme --consumer bigco \\",
        "    --price 5 --per gigabyte -o clicks.odcs.yaml",
    )
)
@click.option("--provider", required=True, help="runs the load, or gives the rows, and is paid")
@click.option("--consumer", required=True, help="has the load, or takes the rows, and pays")
@click.option("--contract", "name", help="its name between the two  [default: CONSUMER-at-PROVIDER]")
@click.option("--currency", default="EUR", show_default=True)
@click.option("--price", required=True, help="of a unit: a core-second, with --query what --per says")
@click.option("--range", "width", default="0", show_default=True, help="so much less a unit may cost")
@click.option("--load", "most", default="1", show_default=True, help="most units a second")
@click.option(
    "--period", default="365d", show_default=True, help="how long it counts, from the next midnight on"
)
@click.option("--notice", default="7d", show_default=True, help="who revokes it says so this long before")
@click.option("--query", type=FILE, help="JSON of a query: a contract about rows of one of its sinks")
@click.option("--sink", help="the sink; may be left out where there is one")
@click.option("--per", default="row", show_default=True, help="with --query, what the price is of")
@click.option("--output", "-o", type=OUT_FILE, help="the file to write  [default: standard output]")
def draft(query: Path | None, output: Path | None, **given: Any) -> None:
    """Write terms to be looked through, filled in and proposed.

    About load: TOML. With --query about the rows of a sink: a file of the Open Data Contract Standard.
    """
    text = _draft_of_load(**given) if query is None else _draft_of_content(query, **given)
    if output is None:
        click.echo(text, nl=False)
        return
    from medusa.runtime.keys.key_files import PUBLIC_MODE, write_new

    write_new(output, text, PUBLIC_MODE)
    click.echo(f"the terms are in {output}: look them through, then medusa contract propose")


def _period(period: str) -> tuple[int, int]:
    day_us = TIME_UNITS_US["d"]
    begins_us = (now_us() // day_us + 1) * day_us
    return begins_us, begins_us + duration_us(period, what="--period", minimum_us=1, error=ConfigError)


def _draft_of_load(
    *,
    provider: str,
    consumer: str,
    name: str | None,
    currency: str,
    price: str,
    width: str,
    most: str,
    period: str,
    notice: str,
    **_: Any,
) -> str:
    from medusa.runtime.contracts.terms_document import read_terms, terms_text
    from medusa.runtime.contracts.terms_fields import time_text, toml_text

    begins_us, ends_us = _period(period)
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
    period: str,
    notice: str,
    sink: str | None,
    per: str,
    **_: Any,
) -> str:
    from medusa.cli.options.query_file import read_query
    from medusa.market.money import micro_of
    from medusa.query.boxes import Sink, Source
    from medusa.query.graph import check_graph
    from medusa.query.suggest import did_you_mean
    from medusa.runtime.contracts.content import ContentTerms, content_text, read_content

    asked = read_query(query)
    sinks = {box.id: box for box in asked.graph.boxes if isinstance(box, Sink)}
    if sink is None and len(sinks) == 1:
        (sink,) = sinks
    if sink not in sinks:
        text = f"--sink is {sink!r}: query {asked.name!r} has no such sink" if sink else "--sink is missing"
        raise ConfigError(text, hint=did_you_mean(sink or "", sinks), code="contract.sink")
    begins_us, ends_us = _period(period)
    schema = check_graph(asked.graph).shapes[sinks[sink].inputs[0]].schema
    times = {box.time for box in asked.graph.boxes if isinstance(box, Source)}
    columns = [field.name for field in schema]
    terms = ContentTerms(
        id=name or f"{consumer}-at-{provider}",
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
    made = content_text(terms, time=next((each for each in columns if each in times), None))
    read_content(made, "the draft")
    return made
