"""The ``medusa`` command. Everything heavy is imported by the command that needs it."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable, MutableMapping
from dataclasses import asdict
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from medusa.cli.contract import contract
from medusa.cli.dashboard import dashboard, draw
from medusa.cli.demo import demo
from medusa.cli.explain import explain
from medusa.cli.keygen import declare, keygen
from medusa.cli.move import grant, move
from medusa.cli.naming import define, find, queries
from medusa.cli.options.command_options import AS_JSON, FILE, NODE, example, with_client
from medusa.cli.options.key_options import key_options
from medusa.cli.options.query_file import read_placement, read_query
from medusa.cli.options.standby_options import as_options, names_in, read_intervals, read_standby
from medusa.cli.publish import publish
from medusa.cli.remote import remote
from medusa.cli.repair import repair
from medusa.cli.run import run
from medusa.cli.scaling.pool import pool
from medusa.cli.scaling.split import merge, scale, split
from medusa.cli.signals import INTERRUPTED
from medusa.cli.simulate import sim
from medusa.cli.status import status
from medusa.cli.tail import tail
from medusa.cli.top import top
from medusa.errors import MedusaError, StateError
from medusa.units import duration_text

if TYPE_CHECKING:
    from medusa.runtime.client.federation import Federation

__all__ = ["main"]


class _Commands(click.Group):
    """A group that prints our errors as one line and a hint, and lists commands as defined."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except MedusaError as error:
            # A place in a text is shown below it; everything else is one line.
            text = error.message if "\n" in error.message and "^" in error.message else None
            click.echo(f"error: {text or ' '.join(error.message.split())}", err=True)
            if error.hint:
                click.echo(f"hint: {as_options(error.hint)}", err=True)
            ctx.exit(1)
        except (KeyboardInterrupt, click.Abort):
            click.echo("interrupted", err=True)
            ctx.exit(INTERRUPTED)
        except BrokenPipeError:  # the reader has seen enough, as with `| head`
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115  (else Python complains on exit)
            ctx.exit(0)


class _Loaded(click.Group):
    """A group whose commands are loaded when they are asked for, as md.spark is heavy."""

    def __init__(
        self, name: str, load: Callable[[], MutableMapping[str, click.Command]], **more: Any
    ) -> None:
        self._load = load
        super().__init__(name, **more)

    @property
    def commands(self) -> MutableMapping[str, click.Command]:
        return self._load()

    @commands.setter
    def commands(self, value: object) -> None:
        """What click begins with: none."""


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="medusa-streams", prog_name="medusa")
def main() -> None:
    """Medusa: continuous queries over streams, inside a program or over many nodes."""


for _each in (demo, run, publish, top, draw, dashboard, keygen, declare, contract, sim):
    main.add_command(_each)


@main.command(epilog=example("medusa node edge-1.toml", "medusa node edge-1.toml --rebuild"))
@click.argument("config", type=FILE)
@click.option("--with-parent", is_flag=True, help="end when standard input does: don't outlive the parent")
@click.option("--json", "as_json", is_flag=True, help="say as JSON where it listens, for scripts")
@click.option("--rebuild", is_flag=True, help="its disk was lost: get what its peers know of it")
def node(config: Path, with_parent: bool, as_json: bool, rebuild: bool) -> None:
    """Run a node until it is told to stop (Ctrl-C, SIGTERM).

    CONFIG is a TOML file: name, listen, data, [peers], [limits]; docs/nodes.md describes it. A node
    that was killed goes on from its last checkpoint when it is started again.

    With --rebuild and an empty data folder it begins in doubt, asks its peers what it had, and follows
    again whatever others keep; what nobody stood by for is listed as lost (docs/repair.md).

    Exit codes: 0 after its last checkpoint; 1 for an error, with a line that says what to do (the
    configuration, the address, the data folder, a last checkpoint that wasn't written); 2 for a wrong
    command line.
    """
    from medusa.runtime.node.process import run_node

    if with_parent:
        threading.Thread(target=_end_with_input, daemon=True).start()
    run_node(config, as_json=as_json, rebuild=rebuild)


main.add_command(repair)
main.add_command(pool)


def _gateway_commands() -> MutableMapping[str, click.Command]:
    from medusa.cli.gateway import finish, forget, run, status

    return {"run": run, "status": status, "forget": forget, "finish": finish}


class _Gateway(_Loaded):
    """``medusa gateway CONFIG`` runs one; what else there is has a name."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        first = next((each for each in args if not each.startswith("-")), None)
        slip = first is not None and not os.path.exists(first) and get_close_matches(first, self.commands)
        if first is not None and first not in self.commands and not slip:
            args = ["run", *args]
        return super().parse_args(ctx, args)


main.add_command(
    _Gateway(
        "gateway",
        _gateway_commands,
        help="A gateway between Spark and a node: `medusa gateway CONFIG` runs one (CONFIG is a TOML file).",
        epilog=example("medusa gateway gateway.toml", "medusa gateway status --gateway tcp://127.0.0.1:7777"),
    )
)


@main.command("spark-participant", epilog=example("medusa spark-participant spark1.toml"))
@click.argument("config", type=FILE)
@click.option("--with-parent", is_flag=True, help="end when standard input does: don't outlive the parent")
@click.option("--json", "as_json", is_flag=True, help="say as JSON where it listens, for scripts")
def spark_participant(config: Path, with_parent: bool, as_json: bool) -> None:
    """Run a node whose fragments run on Spark, until it is told to stop (Ctrl-C, SIGTERM).

    CONFIG is that of a node (medusa node), with a table [spark]: master, memory, shards, latency, conf;
    docs/spark.md describes it. Move a fragment there, and back, as between nodes: medusa move. It takes what
    runs on Spark in time, and refuses the rest with the reason. Exit codes are those of medusa node.
    """
    from medusa.spark.overflow.command import run_participant

    if with_parent:
        threading.Thread(target=_end_with_input, daemon=True).start()
    run_participant(config, as_json=as_json)


@main.command(epilog=example("medusa deploy netmon.json --node tcp://127.0.0.1:5555 --at placement.json"))
@click.argument("query", type=FILE)
@NODE
@key_options
@click.option("--at", type=FILE, help='JSON: {"node": ["box or source", ...]}')
@click.option("--balance", is_flag=True, help="place boxes by load; --at then says what is pinned")
@click.option("--nodes", metavar="NODE,...", help="with --balance: those that may be used; else the own ones")
@click.option(
    "--bandwidth",
    multiple=True,
    metavar="NODE=SIZE",
    help='with --balance: what a node can send and receive in a second: edge-1="10 MB"',
)
@click.option(
    "--standby",
    multiple=True,
    metavar="WHAT=NODE,...|auto",
    help="who stands by for a node, a box or a fragment: core=spare-1,spare-2; auto chooses for all others",
)
@click.option(
    "--witness", multiple=True, metavar="NODE,...", help="votes on who takes over, and runs nothing"
)
@click.option(
    "--checkpoint-every",
    multiple=True,
    metavar="WHAT=DURATION|DURATION",
    help="how often a node, a box or a fragment takes a checkpoint: core=2s; without WHAT all others",
)
@click.option("--dry-run", is_flag=True, help="say what would stand where, with which loads; deploy nothing")
@AS_JSON
def deploy(
    query: Path,
    address: str,
    at: Path | None,
    balance: bool,
    nodes: str | None,
    bandwidth: tuple[str, ...],
    standby: tuple[str, ...],
    witness: tuple[str, ...],
    checkpoint_every: tuple[str, ...],
    dry_run: bool,
    as_json: bool,
    **keys: Any,
) -> None:
    """Deploy a query, written by q.to_json(), over nodes.

    With --standby other nodes run along, and take over when a machine is lost for good: docs/standby.md.
    """
    from medusa.runtime.client import placement as planning
    from medusa.runtime.client.client import connect

    given = None if at is None else read_placement(at)
    if (nodes is not None or bandwidth) and not balance:
        raise click.UsageError("--nodes and --bandwidth go with --balance")
    if any("=" not in each for each in bandwidth):
        raise click.UsageError("--bandwidth is NODE=SIZE, such as edge-1=10MB")
    wished = None if nodes is None else [each.strip() for each in nodes.split(",") if each.strip()]
    bytes_per_s = dict(each.split("=", 1) for each in bandwidth)
    placement = planning.balance(pins=given, nodes=wished, bandwidth=bytes_per_s) if balance else given
    asked = read_query(query)
    wishes: dict[str, Any] = {"standby": read_standby(standby), "witness": names_in(witness)}
    wishes["checkpoint_every"] = read_intervals(checkpoint_every)
    with connect(address, **keys) as fed:
        if dry_run:
            plan = fed.plan(asked, at=placement, **wishes)
            click.echo(json.dumps(asdict(plan)) if as_json else as_options(str(plan)))
            return
        planned = fed.deploy(asked, at=placement, **wishes) or {}
    if as_json:
        click.echo(json.dumps({"deployed": asked.name, **planned}))
        return
    click.echo(f"{asked.name} is deployed")
    for fragment, others in planned.get("standby", {}).items():
        click.echo(f"  {fragment}  standby: {', '.join(others)}")
    for fragment, where, us in planned.get("checkpoint_every", ()):
        click.echo(f"  {fragment} at {where}  checkpoint every {duration_text(us)}")
    for text in planned.get("warnings", ()):
        click.echo(f"warning: {as_options(text)}", err=True)


@main.command(epilog=example("medusa undeploy netmon --node tcp://127.0.0.1:5555"))
@click.argument("name")
@with_client
@AS_JSON
def undeploy(name: str, fed: Federation, as_json: bool) -> None:
    """Stop a query everywhere and forget its state; any node of the participant takes the order."""
    fed.undeploy(name)
    click.echo(json.dumps({"undeployed": name}) if as_json else f"{name} is undeployed")


for _each in (status, define, move, queries, find, grant, split, merge, scale, remote, tail, explain):
    main.add_command(_each)


def _pipeline_commands() -> MutableMapping[str, click.Command]:
    from medusa.cli.pipeline import pipeline, prepare, prepare_options, prepared
    from medusa.cli.pipeline_archive import archive
    from medusa.cli.pipeline_workloads import workload_commands

    if "netmon" not in prepare.commands:
        for each in workload_commands(prepare_options, prepared):
            prepare.add_command(each)
    pipeline.add_command(archive)
    return pipeline.commands


main.add_command(
    _Loaded(
        "pipeline",
        _pipeline_commands,
        help="Archives on Spark: make them, validate answers, sum them up, replay them.",
    )
)


@main.group()
def checkpoint() -> None:
    """Look into checkpoints."""


@checkpoint.command("show", epilog=example("medusa checkpoint show state/"))
@click.argument("path", type=click.Path(exists=True, file_okay=False, path_type=Path))
@AS_JSON
def checkpoint_show(path: Path, as_json: bool) -> None:
    """What a checkpoint folder holds: position of each source, size of each box's state."""
    found = [_checkpoint(group) for group in _groups(path)]
    if as_json:
        click.echo(json.dumps(found))
        return
    for each in found:
        click.echo(f"{each['name']}  query {each['query']}  {each['verdict']}")
        if each.get("delta_on"):
            bases = f"{each['delta_on'][0]} and {len(each['delta_on']) - 1} deltas since"
            click.echo(f"  a delta of {each['stored_bytes']:,} bytes on {bases}")
        for source, rows in each["positions"].items():
            click.echo(f"  source {source}: {rows:,} rows")
        for file in each["files"]:
            rows = "" if file["rows"] is None else f"  {file['rows']:,} rows"
            click.echo(f"  {file['name']}  {file['bytes']:,} bytes{rows}")


def _groups(path: Path) -> list[Path]:
    """The checkpoints in a folder, or the folder itself where it is one."""
    groups = [path] if (path / "manifest.json").exists() else sorted(path.glob("checkpoint-*/"))
    if not groups:
        raise StateError(
            f"{path}: holds no checkpoint",
            hint="name the folder given as checkpoint= to md.start, or one checkpoint in it",
            code="state.missing",
        )
    return groups


def _checkpoint(group: Path) -> dict[str, Any]:
    """One checkpoint, every byte checked; read without its lock, as a run may be writing others."""
    import pyarrow as pa

    from medusa.engine.state.checkpoint import read_chain

    def read(name: str) -> dict[str, bytes]:
        return {file.name: file.read_bytes() for file in sorted((group.parent / name).iterdir())}

    try:
        stored = sum(map(len, read(group.name).values()))
        manifest, data, parts = read_chain(group.name, read, lambda name: str(group.parent / name))
    except (StateError, OSError) as error:
        verdict = f"damaged: {error}"
        return {"name": group.name, "query": "?", "positions": {}, "files": [], "verdict": verdict}
    listed = []
    for name, content in data.items():
        rows = None
        if name.endswith(".arrow"):
            rows = pa.ipc.open_file(pa.py_buffer(content)).read_all().num_rows
        listed.append({"name": name, "bytes": len(content), "rows": rows})
    query = manifest["query"]["name"]
    positions = manifest["positions"]
    return {
        "name": group.name,
        "query": query,
        "positions": positions,
        "files": listed,
        "verdict": "whole",
        "stored_bytes": stored,
        "delta_on": list(parts[:-1]),
    }


def _end_with_input() -> None:
    """Wait for the parent to close our input, as its death does, then ask ourselves to stop."""
    # Not sys.stdin: a thread that waits in it at the end of the interpreter aborts the process.
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
