"""``medusa keygen``: keys for nodes, clients and participants, and what participants sign."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from medusa.cli.options.command_options import AS_JSON, FILE, NODE, OUT_FILE, example
from medusa.cli.options.key_options import key_options
from medusa.errors import ConfigError
from medusa.units import duration_us

if TYPE_CHECKING:
    from medusa.wire.statement import Statement

__all__ = ["declare", "keygen"]

Command = TypeVar("Command", bound=Callable[..., Any])


@click.group()
def keygen() -> None:
    """Make keys, and sign with them.

    A secret key goes into a file that only you can read, its public half into NAME.pub beside it.
    docs/keys.md tells, step by step, how two participants let each other's nodes in.
    """


@keygen.command(epilog=example("medusa keygen node keys/edge-1.key"))
@click.argument("file", type=OUT_FILE)
@AS_JSON
def node(file: Path, as_json: bool) -> None:
    """Make the CURVE key of a node."""
    _make("node", file, as_json)


@keygen.command(epilog=example("medusa keygen client reporting.key"))
@click.argument("file", type=OUT_FILE)
@AS_JSON
def client(file: Path, as_json: bool) -> None:
    """Make the CURVE key of a client: of a program that publishes, reads, deploys or asks."""
    _make("client", file, as_json)


@keygen.command(epilog=example("medusa keygen participant alice.key"))
@click.argument("file", type=OUT_FILE)
@AS_JSON
def participant(file: Path, as_json: bool) -> None:
    """Make the Ed25519 key of a participant, who signs the keys of its nodes."""
    _make("participant", file, as_json)


def _make(kind: str, file: Path, as_json: bool) -> None:
    from medusa.runtime.keys.key_files import CurveKey, ParticipantKey, public_path, write_key

    if kind == "participant":
        signer = ParticipantKey.new()
        write_key(file, kind, signer)
        public = signer.key
    else:
        pair = CurveKey.new()
        write_key(file, kind, pair)
        public = pair.public
    beside = public_path(file)
    if as_json:
        click.echo(
            json.dumps({"kind": kind, "file": str(file), "public_file": str(beside), "public": public})
        )
        return
    click.echo(f"the secret key of a {kind} is in {file}: it stays on this machine")
    click.echo(f"its public key is in {beside}, for those who are to know it:")
    click.echo(public)


def _signing_options(command: Command) -> Command:
    options = (
        click.option("--signer", type=OUT_FILE, required=True, help="the secret key of the participant"),
        click.option("--participant", required=True, help="what the participant is called"),
        click.option("--federation", required=True, help="where it is said"),
        click.option("--recipient", default="", help="one node that it is for  [default: every node]"),
        click.option("--expires", default="365d", show_default=True, help="it counts for so long from now"),
        click.option(
            "--epoch", type=click.IntRange(min=0), default=1, show_default=True, help="of its numbers"
        ),
        click.option(
            "--sequence",
            type=click.IntRange(min=0),
            help="beyond the last one about the same  [default: microseconds since 1970]",
        ),
        click.option("--output", "-o", type=OUT_FILE, required=True, help="the file to write"),
        AS_JSON,
    )
    for option in reversed(options):
        command = option(command)
    return command


@keygen.command(
    epilog=example(
        "medusa keygen certificate edge-1.pub --node edge-1 --signer alice.key \\",
        "    --participant alice --federation netmon --output edge-1.cert",
    )
)
@click.argument("public", metavar="FILE|KEY")
@click.option("--node", "name", required=True, help="whose key it is")
@_signing_options
def certificate(public: str, name: str, **given: Any) -> None:
    """Sign that a CURVE key belongs to a node of a participant.

    Nodes that know the participant let that key in as that node's, beside the one that they know.
    """
    from medusa.wire.statement import Certificate

    key = _public(public)
    _write(lambda fields: Certificate(node=name, key=key, **fields), **given)


@keygen.command(
    epilog=example(
        "medusa keygen revocation edge-1.pub --signer alice.key \\",
        "    --participant alice --federation netmon --output edge-1.revoked",
        "medusa declare edge-1.revoked --node tcp://10.0.0.7:5557 --key me.key --server-key core.pub",
    )
)
@click.argument("public", metavar="FILE|KEY")
@_signing_options
def revocation(public: str, **given: Any) -> None:
    """Sign that a CURVE key counts no more, for ever. Say it to one node: nodes pass it on."""
    from medusa.wire.statement import Revocation

    key = _public(public)
    _write(lambda fields: Revocation(key=key, **fields), **given)


def _public(given: str) -> str:
    from medusa.runtime.keys.key_files import read_public
    from medusa.wire.statement import is_curve_key

    return given if is_curve_key(given) and not Path(given).exists() else read_public(given, "node", "client")


def _write(
    make: Callable[[dict[str, Any]], Statement],
    *,
    signer: Path,
    expires: str,
    sequence: int | None,
    output: Path,
    as_json: bool,
    **fields: Any,
) -> None:
    from medusa.runtime.keys.key_files import PUBLIC_MODE, read_participant_key, write_new
    from medusa.wire.statement import sign, to_text

    now_us = time.time_ns() // 1000
    fields["expiry_us"] = now_us + duration_us(expires, what="--expires", minimum_us=1, error=ConfigError)
    fields["sequence"] = now_us if sequence is None else sequence
    statement = make(fields)
    write_new(output, to_text(sign(statement, read_participant_key(signer))), PUBLIC_MODE)
    kind = type(statement).__name__.lower()
    if as_json:
        told = {"kind": kind, "file": str(output), "key": statement.key, "expiry_us": statement.expiry_us}
        click.echo(json.dumps(told))
    else:
        click.echo(f"the {kind} of {statement.key} is in {output}")


@click.command(
    epilog=example("medusa declare edge-1.cert --node tcp://10.0.0.7:5557 --key me.key --server-key core.pub")
)
@click.argument("file", type=FILE)
@NODE
@key_options
@AS_JSON
def declare(file: Path, address: str, key: str | None, server_key: str | None, as_json: bool) -> None:
    """Tell a node what a participant has signed: a certificate or a revocation.

    It checks the signature, keeps it on disk and passes it on to its peers.
    """
    from medusa.runtime.client.client import connect

    try:
        text = file.read_text(encoding="ascii", errors="replace")
    except OSError as error:
        raise ConfigError(f"{file} can't be read: {error.strerror}", code="config.key.file") from None
    with connect(address, key=key, server_key=server_key) as fed:
        fed.declare(text)
    click.echo(json.dumps({"declared": str(file)}) if as_json else f"{file} is declared")
