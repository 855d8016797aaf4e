"""``medusa tail``: the rows of a stream, as they come."""

from __future__ import annotations

import signal
import sys
from types import FrameType, TracebackType
from typing import Any

import click

from medusa.cli.options.command_options import NODE
from medusa.cli.options.key_options import key_options
from medusa.cli.signals import INTERRUPTED

__all__ = ["tail"]

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@click.command(
    epilog="\b\nExample:\n  medusa tail netmon.both --node tcp://127.0.0.1:5557 --from oldest --json"
    "\n  medusa tail alerts.out --node tcp://127.0.0.1:5557 --tentative",
)
@click.argument("stream")
@NODE
@key_options
@click.option("--from", "from_", default="now", show_default=True, help="now, oldest, or the number of a row")
@click.option("--limit", type=click.IntRange(min=1), help="end after so many rows")
@click.option("--tentative", is_flag=True, help="also rows that may be wrong, and what becomes of them")
@click.option("--json", "as_json", is_flag=True, help="one JSON document a row, for scripts")
def tail(
    stream: str, address: str, from_: str, limit: int | None, tentative: bool, as_json: bool, **keys: Any
) -> None:
    """Print the rows of a stream as they come, whichever node of the participant has it.

    With --tentative each row has its kind before it. Of a stream of an output with a delay tentative ones
    come too while an input is missing, and lines in between say how the stream is and how many of them are
    void. With --json these are {"kind": "stable" or "tentative", "row": ...}, {"kind": "state", ...},
    {"kind": "undo", ...}, and {"kind": "missed", ...} of tentative rows that had no room.

    It ends with the stream, after --limit rows, or by Ctrl-C, which says how many rows came and from which
    one to go on. Exit code: 0; 130 after Ctrl-C before --limit rows.
    """
    from medusa.cli.screens.tail_lines import TailLines, row_text
    from medusa.elements import Kind
    from medusa.runtime.client.client import connect

    where: str | int = int(from_) if from_.isdecimal() else from_
    came, guesses, next_row, lost_rows = 0, 0, None, 0
    with (
        _Between() as between,
        connect(address, **keys) as fed,
        fed.subscribe(stream, from_=where, tentative=tentative) as trains,
    ):
        lines = TailLines(trains, as_json=as_json) if tentative else None
        try:
            while came != limit:
                train = trains.next()
                if trains.lost_rows > lost_rows:
                    click.echo(f"{trains.lost_rows - lost_rows:,} rows are not kept any more", err=True)
                    lost_rows = trains.lost_rows
                if train is None:
                    return
                if lines is not None:
                    lines.came(train)
                is_guess = lines is not None and train.kind is Kind.TENTATIVE
                for number, row in enumerate(train.batch.to_pylist()):
                    if came == limit:
                        break
                    between.hold()
                    click.echo(row_text(row, as_json) if lines is None else lines.row(train.kind, row))
                    came, guesses = came + 1, guesses + is_guess
                    next_row = next_row if is_guess else train.first_seq + number + 1
                    between.check()
        except KeyboardInterrupt:
            on = "" if next_row is None else f"; --from {next_row} goes on"
            wrong = f", {guesses:,} of them tentative" if guesses else ""
            click.echo(f"ended: {came:,} rows{wrong}{on}", err=True)
            sys.exit(0 if limit is None else INTERRUPTED)


class _Between:
    """Inside, Ctrl-C and SIGTERM end the command, but not between a row's printing and its counting.

    Attributes:
        held: the signal waits for ``check``; a second one doesn't, as nobody may read what is printed.
    """

    def __init__(self) -> None:
        self.held = False
        self._asked = False

    def hold(self) -> None:
        """Let the signal wait for ``check``."""
        self.held = True

    def check(self) -> None:
        """Raise KeyboardInterrupt if a signal came meanwhile."""
        self.held = False
        if self._asked:
            raise KeyboardInterrupt

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self.held and not self._asked:
            self._asked = True
        else:
            raise KeyboardInterrupt

    def __enter__(self) -> _Between:
        # Who starts us in the background of a script has Ctrl-C ignored: it stays so.
        heard = [each for each in SIGNALS if signal.getsignal(each) not in (signal.SIG_IGN, None)]
        self._before = {each: signal.signal(each, self._ask) for each in heard}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for each, before in self._before.items():
            signal.signal(each, before)
