"""Who hasn't said yet that it knows the current configuration of a query. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

__all__ = ["TELL_LATER_US", "TELL_US", "Telling"]

TELL_US = 100_000
"""Who was told and hasn't answered is told again after this, then after twice as long, and so on."""

TELL_US_MAX = 2_000_000

TELL_LATER_US = 500_000
"""Who was told a configuration tells it to others after this, if they haven't shown by then that they know:
who decided it may have died amid telling."""


@dataclass(slots=True, kw_only=True)
class Telling:
    """One configuration of one query.

    Attributes:
        request: the number of what they are told.
        untold: those that haven't answered.
        knows: those that have, or have shown it otherwise.
        refused: those that refused it and are told again.
        at_us: when they are told again; None: nobody is to be told.
        met_us: node -> when it was last told since it said another number on a link.
    """

    number: int
    request: int
    untold: dict[str, None] = field(default_factory=dict)
    knows: set[str] = field(default_factory=set)
    refused: set[str] = field(default_factory=set)
    met_us: dict[str, int] = field(default_factory=dict)
    at_us: int | None = None
    wait_us: int = TELL_US

    def add(self, nodes: Iterable[str], at_us: int) -> None:
        """They are to be told at this time."""
        new = [node for node in nodes if node not in self.knows]
        self.untold |= dict.fromkeys(new)
        if new:
            self.at_us = at_us if self.at_us is None else min(self.at_us, at_us)

    def told(self, now_us: int, *, reached: bool) -> None:
        """All of them were told, again. ``reached``: one of them at least is heard; others are told when they
        are."""
        self.at_us = now_us + self.wait_us if reached else None
        self.wait_us = min(2 * self.wait_us, TELL_US_MAX)

    def concerns(self, node: str) -> bool:
        """Whether it was told, or is to be."""
        return node in self.untold or node in self.knows

    def meets(self, now_us: int, node: str) -> bool:
        """It says another number on a link; whether it is to be told, which it was not just now."""
        due = now_us - self.met_us.get(node, -TELL_US) >= TELL_US
        if due:
            self.met_us[node] = now_us
        return due

    def refused_by(self, node: str) -> bool:
        """It refuses it, and is told again; whether for the first time."""
        first = node not in self.refused
        self.refused.add(node)
        return first

    def known_by(self, node: str) -> None:
        """It has this configuration, or a newer one."""
        self.knows.add(node)
        self.untold.pop(node, None)
        if not self.untold:
            self.at_us = None
