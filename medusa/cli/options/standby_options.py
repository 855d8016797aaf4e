"""``--standby``, ``--witness`` and ``--checkpoint-every``: what is wished for the fragments of a query."""

from __future__ import annotations

import re
from collections.abc import Iterable

import click

__all__ = ["as_options", "names_in", "read_intervals", "read_standby"]

AUTO, REST = "auto", "*"


def read_standby(given: Iterable[str]) -> dict[str, str | list[str]] | None:
    """As ``fed.deploy`` takes it; None: nobody is to stand by.

    Raises:
        UsageError: one is neither ``auto`` nor ``WHAT=NODE,...``, or two are about the same.
    """
    found: dict[str, str | list[str]] = {}
    for each in given:
        key, equals, names = each.partition("=")
        if not equals and key == AUTO:
            key, names = REST, AUTO
        if not key or not names_in([names]):
            raise click.UsageError(
                f"--standby is WHAT=NODE,... or {AUTO}, such as core=spare-1, and not {each}"
            )
        if key in found:
            raise click.UsageError(f"--standby says twice who stands by for {key}")
        found[key] = AUTO if names == AUTO else names_in([names])
    return found or None


def read_intervals(given: Iterable[str]) -> dict[str, str] | None:
    """As ``fed.deploy`` takes it; None: nodes say how often.

    Raises:
        UsageError: two are about the same, or one names nothing.
    """
    found: dict[str, str] = {}
    for each in given:
        key, equals, every = each.rpartition("=")
        key = key if equals else REST
        if not key or not every:
            raise click.UsageError(
                f"--checkpoint-every is WHAT=DURATION or DURATION, such as core=2s, and not {each}"
            )
        if key in found:
            raise click.UsageError(f"--checkpoint-every says twice how often for {key}")
        found[key] = every
    return found or None


def names_in(given: Iterable[str]) -> list[str]:
    """Names that stand one by one or between commas."""
    return [name.strip() for each in given for name in each.split(",") if name.strip()]


_AUTO = re.compile(r'standby="auto"')
_NAMED = re.compile(r'standby=\{"([^"]+)": \[([^\]]*)\]\}')
_WITNESS = re.compile(r"witness=\[([^\]]*)\]")


def as_options(text: str) -> str:
    """A hint or warning, with options in place of the arguments of ``fed.deploy``."""
    text = _AUTO.sub(f"--standby {AUTO}", text)
    text = _NAMED.sub(lambda found: f"--standby {found[1]}={_bare(found[2])}", text)
    return _WITNESS.sub(lambda found: f"--witness {_bare(found[1])}", text)


def _bare(names: str) -> str:
    return re.sub(r"[\"' ]", "", names)
