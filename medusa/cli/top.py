"""``medusa top``: where the time goes, in a terminal."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import click

from medusa.cli.options.key_options import key_options
from medusa.cli.screens.top_read import Looked, reading
from medusa.cli.screens.top_screen import SORTS, ordered, screen
from medusa.cli.status import all_option
from medusa.errors import LinkError, QueryError
from medusa.units import duration_us

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["top"]

TIMEOUT_S = 5.0
EXAMPLES = """\b
Example:
  medusa top tcp://127.0.0.1:5555 --all
  medusa top http://127.0.0.1:9100 --sort lag
  medusa top http://127.0.0.1:9100 --once --json"""


@click.command(epilog=EXAMPLES)
@click.argument("address")
@click.option(
    "--sort", "by", type=click.Choice(list(SORTS)), default="load", show_default=True, help="largest first"
)
@key_options
@all_option
@click.option("--every", default="1s", show_default=True, metavar="DURATION", help="how often to look")
@click.option("--once", is_flag=True, help="print one table and end; so it does where there is no terminal")
@click.option("--json", "as_json", is_flag=True, help="one JSON document and end, for scripts")
def top(
    address: str, by: str, all_nodes: bool, every: str, once: bool, as_json: bool, **keys: str | None
) -> None:
    """Watch the boxes of what runs: load, rates, cost, queue, lag, late and dead rows; and above them, of
    outputs with a delay, the streams that aren't stable.

    ADDRESS is a node (tcp://HOST:PORT or ipc://PATH), or what serves metrics
    (http://127.0.0.1:PORT): a program that says md.start(q, metrics="127.0.0.1:9100"), or a node whose
    configuration does. q or Ctrl-C ends it. docs/metrics.md says what each column is.
    """
    every_us = duration_us(every, what="--every", minimum_us=100_000, error=QueryError)
    with reading(address, TIMEOUT_S, all_nodes=all_nodes, **keys) as read:
        looked = read()
        if as_json:
            _print_json(looked, address, by)
            return
        from rich.console import Console

        console = Console(highlight=False)
        if once or not console.is_terminal:
            _print(console, looked, address, by)
            return
        looks: list[int] = [len(looked.boxes)]
        with _ctrl_c_ends():
            _watch(console, looked, lambda: _noted(read(), looks), address, by, every_us / 1e6)
        click.echo(f"ended: {looks[-1]:,} boxes at {address}, looked {len(looks):,} times", err=True)


def _noted(looked: Looked, looks: list[int]) -> Looked:
    looks.append(len(looked.boxes))
    return looked


def _print_json(looked: Looked, address: str, by: str) -> None:
    import msgspec

    document = {"address": address, "boxes": ordered(looked.boxes, by), "streams": looked.streams}
    if looked.market:
        document["market"] = looked.market
    if looked.shedding:
        document["shedding"] = looked.shedding
    click.echo(msgspec.json.encode(document).decode())


def _print(console: Console, looked: Looked, address: str, by: str) -> None:
    from rich.console import Console as Plain

    # Into a file or a pipe nothing is cut off.
    width = None if console.is_terminal else 200
    Plain(highlight=False, width=width).print(screen(*looked, address=address, by=by))


def _watch(
    console: Console, looked: Looked, read: Callable[[], Looked], address: str, by: str, every_s: float
) -> None:
    from rich.live import Live

    trouble, sorts = "", list(SORTS)
    with _keys() as key, Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            shown = screen(*looked, address=address, by=by, trouble=trouble, keys=True)
            live.update(shown, refresh=True)
            pressed = key(every_s)
            if pressed in ("q", "Q"):
                return
            if pressed == "s":
                by = sorts[(sorts.index(by) + 1) % len(sorts)]
            try:
                looked, trouble = read(), ""
            except LinkError as error:
                trouble = f"these numbers are old: {error.message}"


@contextlib.contextmanager
def _ctrl_c_ends() -> Iterator[None]:
    """Inside, Ctrl-C and SIGTERM end the command in order, and are no failure."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with contextlib.suppress(KeyboardInterrupt):
            yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def _keys() -> Iterator[Callable[[float], str]]:
    """A function that waits so many seconds for a key; without a keyboard it only waits."""
    if not sys.stdin.isatty():
        yield lambda seconds: _nothing(seconds)
        return
    import termios
    import tty

    keyboard = sys.stdin.fileno()
    before = termios.tcgetattr(keyboard)
    tty.setcbreak(keyboard)
    try:
        yield lambda seconds: _key(keyboard, seconds)
    finally:
        termios.tcsetattr(keyboard, termios.TCSADRAIN, before)


def _nothing(seconds: float) -> str:
    select.select([], [], [], seconds)
    return ""


def _key(keyboard: int, seconds: float) -> str:
    ready, _, _ = select.select([keyboard], [], [], seconds)
    if not ready:
        return ""
    # The end of the terminal ends us too.
    return os.read(keyboard, 1).decode("ascii", "replace") or "q"
