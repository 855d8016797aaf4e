"""The configuration of a node: its file or its fields, and the modules of functions that it names."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias

from medusa.errors import ConfigError
from medusa.nodes.config.settings import Settings, parse

__all__ = ["NodeConfig", "import_functions", "load_settings", "shown"]

NodeConfig: TypeAlias = str | os.PathLike[str] | Mapping[str, Any]
"""A file, or its fields."""

CONFIG_BYTES_MAX = 1 << 20
TABLES_MAX = 8
"""Within each other; a configuration has three."""


def load_settings(config: NodeConfig) -> Settings:
    """Read the configuration of a node.

    Args:
        config: a file, whose folder relative paths in it are relative to; or its fields, and then they
            are relative to the working directory.

    Raises:
        ConfigError: it can't be read, or something in it isn't right.
    """
    if isinstance(config, Mapping):
        return parse(_table(config, shown(config)), where=shown(config), folder=os.getcwd())
    if not isinstance(config, str | os.PathLike):
        raise ConfigError(
            f"a node's configuration is a file or a dict, came {type(config).__name__}",
            hint="docs/nodes.md shows one",
            code="config.kind",
        )
    path = Path(config)
    data = b""
    try:
        if path.stat().st_size > CONFIG_BYTES_MAX:
            raise ConfigError(f"{path} is larger than {CONFIG_BYTES_MAX:,} bytes", code="config.size")
        data = path.read_bytes()
        text = data.decode("utf-8")
    except OSError as error:
        raise ConfigError(f"{path} can't be read: {error.strerror}", code="config.file") from None
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        reason = f"{path} line {line}: no UTF-8 text: {error.reason}"
        raise ConfigError(reason, hint="save it as UTF-8", code="config.file") from None
    return parse(text, where=str(path), folder=str(path.resolve().parent))


def shown(config: NodeConfig) -> str:
    """What messages call it."""
    return "config" if isinstance(config, Mapping) else str(Path(config))


def import_functions(settings: Settings) -> None:
    """Import the modules that the configuration lists, so that what they register is there.

    Raises:
        ConfigError: one can't be imported, for whatever reason.
    """
    for name in settings.functions:
        try:
            import_module(name)
        except Exception as error:
            raise ConfigError(
                f"functions: module {name!r} can't be imported: {type(error).__name__}: {error}",
                hint="it is looked for as by `python -m`: install it, or set PYTHONPATH",
                code="config.functions",
            ) from error


def _table(given: Mapping[str, Any], where: str, within: str = "") -> dict[str, Any]:
    """A copy, as TOML would have given it: tables, lists, and paths as text."""
    found: dict[str, Any] = {}
    for key, value in given.items():
        if not isinstance(key, str):
            before = f"{within}: " if within else ""
            raise ConfigError(
                f"{where}: {before}{key!r:.80} is no name of a field",
                hint="names are text",
                code="config.value",
            )
        name = f"{within}.{key}" if within else key
        if isinstance(value, Mapping) and name.count(".") > TABLES_MAX:
            raise ConfigError(f"{where}: {name:.80}: too many tables in each other", code="config.value")
        found[key] = _table(value, where, name) if isinstance(value, Mapping) else _plain(value)
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return [os.fspath(each) if isinstance(each, os.PathLike) else each for each in value]
    return os.fspath(value) if isinstance(value, os.PathLike) else value
