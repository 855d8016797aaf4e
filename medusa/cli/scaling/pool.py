"""``medusa pool``: nodes in store are started as they are lacked, and ended when they have nothing."""

from __future__ import annotations

import json
import signal
import threading
import time
from pathlib import Path

import click

from medusa.cli.options.command_options import FILE, example

__all__ = ["pool"]


@click.command(epilog=example("medusa pool pool.toml --dry-run", "medusa pool pool.toml"))
@click.argument("config", type=FILE)
@click.option("--dry-run", is_flag=True, help="say how its nodes are, and what would be done and why")
@click.option("--json", "as_json", is_flag=True, help="a JSON document a line, for scripts")
def pool(config: Path, dry_run: bool, as_json: bool) -> None:
    """Start nodes in store when a query lacks some, and end them when they have nothing to do.

    CONFIG is a TOML file: node, [nodes], idle, warm, [provider]; docs/scaling.md describes it. It asks nodes
    as a client does: those with [scale] say what their queries lack. A node is asked before it is ended, and
    stays while it has anything. Each act is a line, with the reason.

    It runs until Ctrl-C or SIGTERM; nodes that it has started run on, or, with at_end = "stop", those that
    have nothing end too. Exit codes: 0 after that; 1 for an error, with a line that says what to do.
    """
    from medusa.runtime.pool.pool_loop import opened_pool

    def say(level: str, what: str, **fields: str) -> None:
        if as_json:
            click.echo(json.dumps({"level": level, "what": what, **fields}))
            return
        stamp = "" if dry_run else f"{time.strftime('%Y-%m-%d %H:%M:%S')} "
        node = f" {fields.pop('node')}" if "node" in fields else ""
        said = "; ".join(fields.values())
        what = f"warning: {what}" if level == "warning" else what
        click.echo(f"{stamp}{what}{node}{': ' if said else ''}{said}")

    over = threading.Event()
    with opened_pool(config, say) as loop:
        if dry_run:
            if not loop.dry_run() and not as_json:
                click.echo("would do nothing")
            return
        stops = (signal.SIGTERM, signal.SIGINT)
        before = {each: signal.signal(each, lambda number, frame: over.set()) for each in stops}
        try:
            say("info", "looks after its nodes; Ctrl-C ends it")
            loop.run(over)
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)
