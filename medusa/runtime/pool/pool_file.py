"""What ``medusa pool`` is told: a TOML file.

node = "tcp://127.0.0.1:5555"       # a node of the participant, or several; best the one that has [scale]
every = "2s"                        # so often it looks
idle = "60s"                        # a node that has had nothing for so long is let go
start = "10 min"                    # one that doesn't answer by then is given up
warm = 0                            # so many that have nothing are kept up at least
warm_max = 0                        # and at most: as many as were lacked at once of late
warm_start = "30s"                  # so long a node takes to start, until one was seen to
warm_within = "1h"                  # of late
at_end = "leave"                    # what becomes of nodes that it started: "leave" or "stop"

[nodes]                             # those in store, in the order in which they are taken
spare1 = "spare1.toml"              # what its provider has to know: of a process its configuration

[keys]                              # where nodes have keys: as --key and --server-key
client = "pool.key"
node = "gate.pub"

[provider]                          # who starts and ends them; left out: processes of this machine
class = "our_cloud:Machines"        # or "fixed": somebody else
options = { zone = "b" }            # Machines({"spare1": "spare1.toml"}, zone="b")
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from medusa.errors import ConfigError
from medusa.nodes.config.config_file import NAME, NAME_RULE, ConfigFile
from medusa.nodes.config.fields import choice, duration, number, read_fields
from medusa.nodes.config.settings import check_address
from medusa.nodes.pool.pool_keeper import PoolRules
from medusa.nodes.pool.provider import FixedList, NodeProvider
from medusa.nodes.pool.warm_nodes import AdaptiveWarm, SteadyWarm, WarmPolicy
from medusa.runtime.pool.local_processes import LocalProcesses

__all__ = ["PoolFields", "PoolFile", "read_pool"]

CONFIG_BYTES_MAX = 1 << 20
FIXED, PROCESSES = "fixed", "processes"
METHODS = ("acquire", "release", "nodes")


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolFields:
    """When nodes are started and let go."""

    every_us: int = duration("2s", "100ms", "10 min")
    """So often it looks. Too small: nodes tell their status for nothing; too large: help comes late."""

    idle_us: int = duration("60s", "0s", "7 days")
    """A node that has had nothing for so long is let go. Too small: it is soon started again; too large: it
    is paid for."""

    start_us: int = duration("10 min", "1s", "24h")
    """One that doesn't answer so long after it was acquired is given up."""

    warm: int = number(0, 0, 1000)
    """So many that have nothing are kept up at least."""

    warm_max: int = number(0, 0, 1000)
    """And so many at most: as many as were lacked at once of late. Below `warm`: it is always `warm`."""

    warm_start_us: int = duration("30s", "1s", "24h")
    """So long a node takes to start, until one was seen to."""

    warm_within_us: int = duration("1h", "1 min", "30 days")
    """What was lacked longer ago is forgotten."""

    at_end: str = choice("leave", ("leave", "stop"))
    """What becomes of nodes that it has started once it ends; those that have something are left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolFile:
    """A pool, as its file says.

    Attributes:
        addresses: of nodes that are asked.
        keys: arguments of ``md.connect``.
        nodes: those in store -> what the provider is told.
    """

    addresses: tuple[str, ...]
    fields: PoolFields
    nodes: Mapping[str, str]
    keys: Mapping[str, str]
    provider: Callable[[], NodeProvider]

    @property
    def rules(self) -> PoolRules:
        return PoolRules(idle_us=self.fields.idle_us, start_us=self.fields.start_us)

    def warm(self) -> WarmPolicy:
        """What decides how many are kept up that have nothing."""
        of = self.fields
        if of.warm_max <= of.warm:
            return SteadyWarm(of.warm)
        return AdaptiveWarm(of.warm, of.warm_max, start_us=of.warm_start_us, within_us=of.warm_within_us)


def read_pool(path: Path) -> PoolFile:
    """Read the file of a pool; paths in it are relative to its folder. Nothing is started.

    Raises:
        ConfigError: it can't be read, or a field is missing, unknown or wrong; names its line.
    """
    try:
        if path.stat().st_size > CONFIG_BYTES_MAX:
            raise ConfigError(f"{path} is larger than {CONFIG_BYTES_MAX:,} bytes", code="config.size")
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} can't be read: {error}", code="config.file") from None
    file = ConfigFile(text, str(path))
    folder = path.resolve().parent
    plain = {key: value for key, value in file.root.items() if not isinstance(value, dict)}
    tables = [key for key, value in file.root.items() if isinstance(value, dict)]
    file.known("", dict.fromkeys(tables), ("node", "nodes", "keys", "provider"))
    found = read_fields(file, "", plain, PoolFields, more=("node",))
    keys = _keys(file, folder)
    nodes = _nodes(file)
    return PoolFile(
        addresses=_addresses(file, keyed=bool(keys)),
        fields=PoolFields(**found),
        nodes=nodes,
        keys=keys,
        provider=_provider(file, nodes, folder),
    )


def _addresses(file: ConfigFile, *, keyed: bool) -> tuple[str, ...]:
    given = file.root.get("node")
    listed = [given] if isinstance(given, str) else given
    if not isinstance(listed, list) or not listed or not all(isinstance(each, str) for each in listed):
        hint = 'write node = "tcp://127.0.0.1:5555", or a list of such'
        raise file.error("node", f"expected an address, got {given!r:.80}", hint=hint)
    try:
        return tuple(check_address(each, bind=False, keyed=keyed) for each in listed)
    except ConfigError as error:
        raise file.error("node", error.message, hint=error.hint, code=error.code) from None


def _nodes(file: ConfigFile) -> dict[str, str]:
    nodes = file.table("nodes")
    if not nodes:
        raise file.error("nodes", "there are none", hint='[nodes] and below it spare1 = "spare1.toml"')
    for name, value in nodes.items():
        if not NAME.fullmatch(name):
            raise file.error("nodes", f"{name[:80]!r} is no name", hint=NAME_RULE, within=name)
        if not isinstance(value, str):
            hint = f'write {name} = "{name}.toml"'
            raise file.error("nodes", f"expected text, got {value!r:.80}", hint=hint, within=name)
    return nodes


def _keys(file: ConfigFile, folder: Path) -> dict[str, str]:
    keys = file.table("keys")
    file.known("keys", keys, ("client", "node"))
    if keys and len(keys) < 2:
        missing = "node" if "client" in keys else "client"
        hint = '[keys] client = "NAME.key", node = "NODE.pub"'
        raise file.error("keys", f"{missing} is missing: they go together", hint=hint, code="config.keys")
    found = {}
    for field, argument in (("client", "key"), ("node", "server_key")):
        if field in keys:
            value = keys[field]
            if not isinstance(value, str):
                text = f"expected a file or a key, got {value!r:.80}"
                raise file.error("keys", text, hint='"NAME.key"', within=field)
            path = folder / value
            found[argument] = str(path) if path.exists() or len(value) != 40 else value
    return found


def _provider(file: ConfigFile, nodes: Mapping[str, str], folder: Path) -> Callable[[], NodeProvider]:
    """What makes the provider."""
    table = file.table("provider")
    file.known("provider", table, ("class", "options"))
    name, options = table.get("class", PROCESSES), table.get("options", {})
    if not isinstance(name, str) or not (name in (FIXED, PROCESSES) or name.count(":") == 1):
        hint = f'"{PROCESSES}", "{FIXED}", or "MODULE:CLASS" of yours'
        raise file.error("provider", f"{name!r:.80} is no provider", hint=hint, within="class")
    if not isinstance(options, dict):
        text = f"expected a table, got {options!r:.80}"
        raise file.error("provider", text, hint="options = { NAME = VALUE }", within="options")
    if ":" in name:
        return lambda: _own(file, name, nodes, options)
    if options:
        text = f"{name} takes none"
        raise file.error("provider", text, hint="leave them out", within="options")
    if name == FIXED:
        return lambda: FixedList(nodes)
    return lambda: LocalProcesses({node: folder / config for node, config in nodes.items()})


def _own(file: ConfigFile, name: str, nodes: Mapping[str, str], options: Mapping[str, Any]) -> NodeProvider:
    """The provider of a user."""
    module, _, kind = name.partition(":")
    try:
        made = getattr(import_module(module), kind)(dict(nodes), **options)
    except Exception as error:
        raise file.error(
            "provider",
            f"{name} can't be made: {type(error).__name__}: {error}",
            hint=f"{kind}(nodes, **options) is called; it is looked for as by `python -m`: set PYTHONPATH",
            within="class",
        ) from error
    missing = [each for each in METHODS if not callable(getattr(made, each, None))]
    if missing:
        text = f"{name} has no {', '.join(missing)}"
        raise file.error("provider", text, hint="docs/scaling.md shows one", within="class")
    provider: NodeProvider = made
    return provider
