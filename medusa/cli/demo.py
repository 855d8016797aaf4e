"""``medusa demo``: what Medusa does, to watch. Each demonstration is imported by its command."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from medusa.cli.options.command_options import AS_JSON, FILE, OUT_FILE, example
from medusa.cli.signals import sigterm_interrupts

__all__ = ["demo"]

SPEED = click.option(
    "--speed",
    type=click.FloatRange(min=0),
    default=60.0,
    show_default=True,
    help="1 is real time, 60 a minute of the trace per second, 0 as fast as possible",
)
KEEP = click.option("--keep", is_flag=True, help="keep the nodes' folder: keys, configurations, state, logs")


@click.group()
def demo() -> None:
    """Watch Medusa: a botnet found, overload, scaling, a market, a cut network, lost machines, Spark."""


@demo.command(epilog=example("medusa demo netmon --speed 0 --report netmon.html"))
@SPEED
@click.option("--seed", type=int, default=0, show_default=True, help="of the delays that disorder the flows")
@click.option(
    "--report",
    type=OUT_FILE,
    default="netmon-report.html",
    show_default=True,
    help="where to write the HTML report",
)
@click.option("--trace", type=FILE, help="replay this Parquet file instead of the shipped trace")
@click.option("--check", type=FILE, help="expect the answers of this file (default: of the one replayed)")
@click.option("--keep", is_flag=True, help="keep the nodes' folder: configurations, state, logs")
@AS_JSON
def netmon(*, as_json: bool, **options: Any) -> None:
    """Watch three nodes on this machine find a botnet in a real campus trace.

    Two edge nodes each see every second flow and send partial counts; the third merges them. At the
    end the results are compared, row by row, with an independent computation. Exit code 1: they are
    not equal. Ctrl-C at any time stops all three nodes.
    """
    from medusa.apps.workloads.demos.netmon_demo import NetmonOptions, run_demo

    with sigterm_interrupts():
        equal = run_demo(NetmonOptions(**options), as_json=as_json)
    sys.exit(0 if equal else 1)


@demo.command(epilog=example("medusa demo shed --plot shed.svg"))
@click.option("--plot", type=OUT_FILE, help="draw it: .png or .svg")
@click.option("--seed", type=int, default=0, show_default=True, help="of the rows that come")
@AS_JSON
def shed(plot: Path | None, seed: int, as_json: bool) -> None:
    """Watch a query at 1.5 and 3 times what it can bear.

    By our shedder, by random drops, and with none: what its two outputs are worth, second by second, and
    the account of every row. In virtual time, on rows and costs that are recorded. Exit code 1: an account
    doesn't add up.
    """
    from medusa.apps.workloads.demos.shed_screen import run_demo

    with sigterm_interrupts():
        adds_up = run_demo(plot=plot, seed=seed, as_json=as_json)
    sys.exit(0 if adds_up else 1)


@demo.command(epilog=example("medusa demo scale --out scale.png"))
@click.option(
    "--seconds",
    type=click.FloatRange(20, 3600),
    default=60.0,
    show_default=True,
    help="the load rises for 30 % of them, stays up for 20 %, and is low before and after that",
)
@click.option(
    "--rate",
    type=click.IntRange(100, 20_000),
    default=1200,
    show_default=True,
    help="cars a second at the peak; a tenth of that before and after it",
)
@click.option(
    "--cost",
    type=click.IntRange(1, 100_000),
    default=1000,
    show_default=True,
    help="us that the function takes for each car",
)
@click.option(
    "--computes",
    is_flag=True,
    help="it takes them as CPU time; left out, it waits for so long. Takes four processors that have nothing "
    "else to do",
)
@click.option(
    "--plot",
    "--out",
    "plot",
    type=OUT_FILE,
    default="scale.svg",
    show_default=True,
    help="where to draw load, lateness, nodes and what was done: .png or .svg",
)
@KEEP
@AS_JSON
def scale(*, as_json: bool, **options: Any) -> None:
    """Watch a query spread over idle nodes while its load rises tenfold, and come back when it falls.

    Cars are tolled by road segment. For each the function waits a millisecond, as for a service that it asks.
    That is artificial; so at the peak a node, whose engine has one thread, can't bear it. Node `toll` runs
    it; three spare nodes stand in [peers] and do nothing. Node `gate` coordinates the query and has [scale]:
    it splits the box, moves parts to spare nodes, and merges them again, by itself. At the end the result is
    compared, row by row, with the query in one program, and each check is printed as held or not held. Exit
    code 1: one that isn't about times is not held. Ctrl-C at any time stops all nodes.
    """
    from medusa.apps.workloads.scaling.scale_demo import ScaleDemoOptions, run_demo

    with sigterm_interrupts():
        fine = run_demo(ScaleDemoOptions(**options), as_json=as_json)
    sys.exit(0 if fine else 1)


@demo.command(epilog=example("medusa demo federation --json"))
@click.option(
    "--rate", type=click.IntRange(50, 1_000_000), default=2000, show_default=True, help="cars a second"
)
@click.option(
    "--rest",
    type=click.FloatRange(0, 3600),
    default=1.5,
    show_default=True,
    help="seconds without a change between two of them",
)
@click.option("--seed", type=int, default=0, show_default=True, help="of the cars")
@KEEP
@AS_JSON
def federation(*, as_json: bool, **options: Any) -> None:
    """Watch two owners run one query over five nodes, and change where it runs.

    Alice has three nodes on this machine, bob two; bob runs two boxes for her, within what he offers.
    While rows flow a fragment is moved twice, a box is split over two nodes and merged, a node leaves and
    one joins; a subscriber at bob follows the result by its name. At the end the result is compared, row by
    row, with the query in one process. Exit code 1: something differs. Ctrl-C at any time stops all nodes.
    """
    from medusa.apps.workloads.demos.federation_demo import FederationOptions, run_demo

    with sigterm_interrupts():
        fine = run_demo(FederationOptions(**options), as_json=as_json)
    sys.exit(0 if fine else 1)


@demo.command(epilog=example("medusa demo partition --plot partition.png"))
@click.option(
    "--network",
    type=click.Choice(["namespaces", "relays"]),
    help="what is cut; default: network namespaces where they are allowed, else relays",
)
@click.option(
    "--rate", type=click.IntRange(100, 100_000), default=2000, show_default=True, help="rows a second"
)
@click.option(
    "--rest",
    type=click.FloatRange(0, 3600),
    default=3.0,
    show_default=True,
    help="seconds of rows before the cut, while it lasts, and after it",
)
@click.option(
    "--delay",
    default="2s",
    show_default=True,
    help="what the second cut may add to a result, at least 800ms",
)
@click.option(
    "--plot",
    type=OUT_FILE,
    default="partition.svg",
    show_default=True,
    help="where to draw the numbers of received rows and windows: .png or .svg",
)
@KEEP
@AS_JSON
def partition(*, as_json: bool, **options: Any) -> None:
    """Watch a reader go on with a replica when the network is cut, and stay with it.

    Nodes a, b and c, a publisher p and a reader r are on hosts of their own. Node a runs a fragment, b stands
    by for it, c reads its rows, and r reads those of c. The link of a is cut: b takes over and c reads on at
    the same row; the link heals, and c stays with b. At the end the rows of r are checked: each once, in
    order, equal to those of one undisturbed process. Then another query runs, of which a and b have one input
    and c the other, and both are cut off: r goes on with windows of what is left, tentative, within --delay,
    and has the right ones once the links are whole. What is cut is a network of namespaces, which needs root,
    or else relays below the nodes' connections: the first line says which. Exit code 1: a check isn't passed.
    Ctrl-C at any time stops all nodes.
    """
    from medusa.apps.workloads.partition.partition_demo import PartitionOptions, run_demo

    with sigterm_interrupts():
        fine = run_demo(PartitionOptions(**options), as_json=as_json)
    sys.exit(0 if fine else 1)


@demo.command(epilog=example("medusa demo ha --plot ha.png"))
@click.option(
    "--rate",
    type=click.IntRange(100, 20_000),
    default=2000,
    show_default=True,
    help="rows a second into each query",
)
@click.option(
    "--rest",
    type=click.FloatRange(0.1, 600),
    default=3.0,
    show_default=True,
    help="seconds of rows that are measured before the kill, and that flow after the last takeover",
)
@click.option(
    "--checkpoint-every", default="200ms", show_default=True, help="between two checkpoints of a fragment"
)
@click.option(
    "--plot",
    type=OUT_FILE,
    default="ha.svg",
    show_default=True,
    help="where to draw: ha-numbers.svg, ha-delay.svg, ha-duplicates.svg, ha-overhead.svg; or .png",
)
@KEEP
@AS_JSON
def ha(*, as_json: bool, **options: Any) -> None:
    """Watch machines die for good under one query by each method of recovery.

    Node a feeds the same rows to a query for each method: B passive standby, C active standby, D upstream
    backup, E the same with duplicates eliminated, F amnesia. Each has a primary and a secondary of its own;
    node w votes. All primaries are killed at once (SIGKILL) and never started again. At the end every
    published row is accounted for: received, missing, doubled; and delay, takeover and what it cost are
    compared. Exit code 1: something is lost or doubled that a method promised to keep, or a gap isn't what
    the status says. Ctrl-C at any time stops all nodes.
    """
    from medusa.apps.workloads.demos.ha_demo import HaOptions, run_demo

    with sigterm_interrupts():
        fine = run_demo(HaOptions(**options), as_json=as_json)
    sys.exit(0 if fine else 1)


@demo.command(epilog=example("medusa demo market --plot market.png"))
@click.option("--quick", is_flag=True, help="three owners, until the first has shed what is too much")
@click.option(
    "--plot",
    type=OUT_FILE,
    default="market.svg",
    show_default=True,
    help="where to draw loads, thresholds, moves and balances: .png or .svg",
)
@KEEP
@AS_JSON
def market(*, as_json: bool, **options: Any) -> None:
    """Watch owners trade load by contract: who has too much pays others to run it.

    Alice, bob and carol each have a query of several tasks over a real trace, a node that trades, and a home
    node. Alice gets too much to do, and sheds to bob, then to carol. Then all have too much, and nothing goes
    to and fro. Then dave's node starts, which stood in the others' files all the time. He sells to carol, at
    0.8 of the price: what she sheds to him makes room for what others shed to her. At the end results are
    compared with those of a run in which nothing moves, and what each owes with what its partner says. Each
    check is printed as held or not held. Exit code 1: one isn't that can't depend on how busy the machine is.
    Ctrl-C at any time stops all nodes.
    """
    from medusa.apps.workloads.market.market_demo import MarketOptions, run_demo

    with sigterm_interrupts():
        fine = run_demo(MarketOptions(**options), as_json=as_json)
    sys.exit(0 if fine else 1)


@demo.command(epilog=example("medusa demo overflow --plot overflow.png"))
@click.option(
    "--plot",
    type=OUT_FILE,
    default="overflow.svg",
    show_default=True,
    help="where to draw loads, thresholds, moves and balances: .png or .svg",
)
@KEEP
@AS_JSON
def overflow(*, as_json: bool, **options: Any) -> None:
    """Watch Spark sell load by contract to an owner who has too much.

    Alice compares flows of a real trace with all that are near them in time. The flows come faster, and what
    is too much for her goes to Spark, a node of another owner, who asks what its cores and its waiting cost.
    Both count rows, and sign for them. When there is room again she has her tasks at home. At the end results
    are compared with those of a run in which nothing moves, and what she owes with what Spark's owner says.
    Needs Java 17 and the extras `spark` and `federation`. Exit code 1: a check isn't held. Ctrl-C at any time
    stops all nodes.
    """
    from medusa.apps.workloads.market.overflow_demo import OverflowOptions, run_demo

    with sigterm_interrupts():
        fine = run_demo(OverflowOptions(**options), as_json=as_json)
    sys.exit(0 if fine else 1)


@demo.command("spark", epilog=example("medusa demo spark --json"))
@SPEED
@click.option("--memory", default="1g", show_default=True, help="of Spark")
@click.option("--keep", is_flag=True, help="keep the folder: archives, nodes' state, logs")
@AS_JSON
def spark_demo(*, as_json: bool, memory: str, **options: Any) -> None:
    """Watch Spark prepare, archive and check what two nodes answer.

    Spark makes the input of the campus trace; two nodes on this machine answer a query over it live, some
    rows late, and a fragment goes to Spark and comes back meanwhile. Spark archives the stream, each row
    once, and computes the answers again in batch. Each step's checks are printed. Needs Java 17 and the
    extra `spark`. Exit code 1: a check isn't passed.
    """
    import medusa.spark as jobs
    from medusa.apps.workloads.demos.spark_demo import SparkDemoOptions, run_demo
    from medusa.cli.pipeline import spark_session

    with sigterm_interrupts(), spark_session("local[2]", memory) as spark:
        fine = run_demo(SparkDemoOptions(**options), spark, jobs, as_json=as_json)
    sys.exit(0 if fine else 1)
