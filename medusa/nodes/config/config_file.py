"""A configuration as it was written: its fields by name, and the line of each for messages."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any

from medusa.errors import ConfigError
from medusa.nodes.config.toml_lines import toml_fault, toml_lines
from medusa.query.suggest import did_you_mean

__all__ = ["NAME", "NAME_RULE", "ConfigFile"]

NAME = re.compile(r"[a-z0-9_-]{1,64}")
NAME_RULE = "names are 1 to 64 characters of a-z, 0-9, _ and -"


class ConfigFile:
    """One reading of one text.

    Args:
        given: TOML, or the fields that were read from one.
        where: what to call it in messages.

    Raises:
        ConfigError: no TOML.
    """

    def __init__(self, given: str | Mapping[str, Any], where: str) -> None:
        self.where = where
        self.root: dict[str, Any]
        self._text = given if isinstance(given, str) else ""
        if not isinstance(given, str):
            self.root = dict(given)
            return
        try:
            self.root = tomllib.loads(given)
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(
                f"{where} {toml_fault(given, error)}", hint="see docs/nodes.md", code="config.toml"
            ) from None

    def name(self, key: str) -> str:
        """A field that is a name.

        Raises:
            ConfigError: missing, or none; so of all methods.
        """
        value = self.text(key)
        if not NAME.fullmatch(value):
            raise self.error(key, f"{value[:80]!r} is no name", hint=NAME_RULE)
        return value

    def text(self, key: str) -> str:
        """A field that is text."""
        if key not in self.root:
            raise ConfigError(
                f"{self.where}: {key} is missing", hint=f'add a line: {key} = "..."', code="config.missing"
            )
        value = self.root[key]
        if not isinstance(value, str):
            raise self.error(key, f"expected text, got {value!r}", hint=f'write {key} = "..."')
        return value

    def table(self, key: str) -> dict[str, Any]:
        """A table, empty where there is none."""
        value = self.root.get(key, {})
        if not isinstance(value, dict):
            raise self.error(
                key, f"expected a table, got {value!r}", hint=f"write [{key}] and its fields below"
            )
        return value

    def known(
        self,
        table: str,
        values: Mapping[str, object],
        allowed: Iterable[str],
        below: Mapping[str, Iterable[str]] | None = None,
    ) -> None:
        """Whether a table (empty: the file) has only fields that there are.

        Args:
            below: name of another table -> its fields, to say where one belongs.
        """
        for key in values:
            if key not in allowed:
                below = {} if isinstance(values[key], dict) else below  # A table is no field of another one.
                home = next((name for name, fields in (below or {}).items() if key in fields), None)
                raise self.error(
                    table or key,
                    f"unknown field {key!r}",
                    hint=did_you_mean(key, allowed) if home is None else f"it belongs below [{home}]",
                    within=key,
                    code="config.field",
                )

    def error(
        self, key: str, message: str, *, hint: str, within: str = "", code: str = "config.value"
    ) -> ConfigError:
        """What to raise about a field, or about ``within`` the table ``key``."""
        table = key if within and within != key else ""
        shown = f"{table}.{within}" if table else key or within
        return ConfigError(f"{self.at(table, within or key)}: {shown}: {message}", hint=hint, code=code)

    def at(self, table: str, key: str) -> str:
        """``node.toml line 3``, or only the file where the line can't be told.

        A field that isn't there has the line of the table that it would be in, or of one around that.
        """
        name = f"{table}.{key}" if table and key else table or key
        while name:
            if name in self._lines:
                return f"{self.where} line {self._lines[name]}"
            name = name.rpartition(".")[0]
        return self.where

    @cached_property
    def _lines(self) -> dict[str, int]:
        """Of each field by its name with dots, as callers have it. Worked out for a message only."""
        found: dict[str, int] = {}
        for path, line in (toml_lines(self._text) if self._text else {}).items():
            found.setdefault(".".join(path), line)
        return found
