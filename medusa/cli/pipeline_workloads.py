"""``medusa pipeline prepare netmon`` and ``linear-road``: the workloads that are handed to Spark."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from medusa.apps.workloads.scaled import COPIES_MAX, XWAYS_MAX, LinearRoad, Netmon

__all__ = ["workload_commands"]


def workload_commands(options: Callable[[Any], Any], prepared: Callable[..., None]) -> list[click.Command]:
    """The commands.

    Args:
        options: adds what every ``prepare`` takes.
        prepared: makes the archive of a workload, with these options.
    """

    @click.command(epilog="\b\nExample:\n  medusa pipeline prepare netmon --copies 10 --out flows")
    @click.option(
        "--copies",
        type=click.IntRange(1, COPIES_MAX),
        default=1,
        show_default=True,
        help="how often the trace is in it",
    )
    @options
    def netmon(copies: int, **given: Any) -> None:
        """Make the demo's input at any multiple of its size, from the shipped trace.

        Copies keep times and have addresses of their own, so the answers of each are those of the trace.
        """
        prepared(Netmon(copies), **given)

    @click.command(
        "linear-road", epilog="\b\nExample:\n  medusa pipeline prepare linear-road --xways 4 --out cars"
    )
    @click.option(
        "--xways", type=click.IntRange(1, XWAYS_MAX), default=1, show_default=True, help="expressways"
    )
    @click.option("--cars", type=int, default=900, show_default=True, help="trips that begin on each")
    @click.option("--seconds", type=int, default=900, show_default=True, help="until when cars report")
    @click.option("--seed", type=int, default=0, show_default=True, help="of the traffic")
    @options
    def linear_road(xways: int, cars: int, seconds: int, seed: int, **given: Any) -> None:
        """Make traffic for the Linear Road query."""
        prepared(LinearRoad(xways, cars, seconds, seed), **given)

    return [netmon, linear_road]
