"""``medusa gateway``: a gateway as a process, by a configuration file."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from medusa.errors import ConfigError
from medusa.nodes.config.config_file import ConfigFile
from medusa.nodes.config.settings import check_address
from medusa.spark.exchange.gateway import Gateway, gateway
from medusa.units import byte_count, duration_us

__all__ = ["opened", "run_gateway"]

FIELDS = ("name", "node", "listen", "data", "keys", "clients", "limits")
KEYS = ("client", "node", "gateway")
LIMITS = ("spool", "stage", "keep_staged", "keep_readers")


def run_gateway(config: Path, *, as_json: bool = False) -> None:
    """Run a gateway until SIGTERM or SIGINT.

    Prints one line once it listens: ``gateway spark listening on tcp://...``.

    Raises:
        ConfigError, StateError, LinkError: as ``md.spark.gateway``.
    """
    done = threading.Event()
    stops = (signal.SIGTERM, signal.SIGINT)
    before = {each: signal.signal(each, lambda number, frame: done.set()) for each in stops}
    try:
        with opened(config) as made:
            name = made.name
            line = json.dumps({"gateway": name, "listening": made.address})
            print(line if as_json else f"gateway {name} listening on {made.address}", flush=True)
            while not done.wait(3600):
                continue
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def opened(config: Path) -> Gateway:
    """The gateway of a configuration.

    Raises:
        ConfigError: the file can't be read, or a field is missing, unknown or wrong; names its line.
        StateError, LinkError: as ``md.spark.gateway``.
    """
    try:
        text = config.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{config} can't be read: {error}", code="config.file") from None
    file = ConfigFile(text, str(config))
    file.known("", file.root, FIELDS, {"limits": LIMITS, "keys": KEYS})
    folder = config.resolve().parent
    given: dict[str, Any] = {
        "node": file.text("node"),
        "data": folder / file.text("data"),
        "listen": file.text("listen"),
        "report": _tell,
    }
    if "name" in file.root:
        given["name"] = file.name("name")
    limits = file.table("limits")
    file.known("limits", limits, LIMITS)
    keys = _keys(file, folder)
    for field, keyed in (("node", "key" in keys), ("listen", "gateway_key" in keys)):
        with _about(file, field):
            check_address(given[field], bind=field == "listen", keyed=keyed)
    for field, value in limits.items():
        with _about(file, "limits", field):
            if field.startswith("keep_"):
                duration_us(value, what="", minimum_us=1, error=ConfigError)
            else:
                byte_count(value, what="", error=ConfigError)
    return gateway(**given, **limits, **keys)


@contextlib.contextmanager
def _about(file: ConfigFile, table: str, field: str = "") -> Iterator[None]:
    """What is wrong in here is said of this field, with its line."""
    try:
        yield
    except ConfigError as error:
        text = error.message.removeprefix(": ")
        raise file.error(table, text, hint=error.hint, within=field, code=error.code) from None


def _keys(file: ConfigFile, folder: Path) -> Mapping[str, Any]:
    keys, clients = file.table("keys"), file.table("clients")
    file.known("keys", keys, KEYS)
    found: dict[str, Any] = {}
    for field, argument in (("client", "key"), ("node", "server_key"), ("gateway", "gateway_key")):
        if field in keys:
            found[argument] = _key(file, "keys", field, keys[field], folder)
    if ("client" in keys) is not ("node" in keys):
        missing = "node" if "client" in keys else "client"
        raise file.error(
            "keys",
            f"{missing} is missing: the key that the gateway calls with goes with the public one of the node",
            hint='[keys] client = "NAME.key", node = "NODE.pub"',
            within="client" if "client" in keys else "node",
            code="config.keys",
        )
    if ("gateway" in keys) is not bool(clients):
        missing = "[clients.NAME]" if "gateway" in keys else "[keys] gateway"
        raise file.error(
            "keys" if "gateway" in keys else "clients",
            f"{missing} is missing: the gateway's key, and those who may ask, go together",
            hint="medusa keygen node gateway.key; [clients.NAME] key = NAME.pub, of each who runs Spark",
            code="config.keys",
        )
    found["clients"] = []
    for name, table in clients.items():
        if not isinstance(table, dict) or list(table) != ["key"]:
            raise file.error(
                "clients",
                f"expected a table with `key`, got {table!r:.80}",
                hint=f'[clients.{name}] and below it key = "{name}.pub"',
                within=name,
            )
        found["clients"].append(_key(file, f"clients.{name}", "key", table["key"], folder))
    return found


def _key(file: ConfigFile, table: str, field: str, value: object, folder: Path) -> str:
    """A path, relative to the file's folder; or the text of a public key."""
    if not isinstance(value, str):
        raise file.error(
            table, f"expected a file or a key, got {value!r:.80}", hint='"NAME.key"', within=field
        )
    path = folder / value
    return os.fspath(path) if path.exists() or len(value) != 40 else value


def _tell(line: str) -> None:
    print(f"{time.strftime('%Y-%m-%d %H:%M:%S')} gateway warning {line}", file=sys.stderr, flush=True)
