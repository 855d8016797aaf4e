"""Methods of recovery: which this release has, and what each promises."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from medusa.apps.workloads.demos.ha_outcome import HaAccount
from medusa.query.recovery import ACTIVE, AMNESIA, METHODS, PASSIVE, STATE_BACKUP, UPSTREAM

__all__ = ["ALONE", "BACKED_UP", "Method", "asked_for", "known_methods"]


@dataclass(frozen=True, slots=True)
class Method:
    """How an output is recovered.

    Attributes:
        key: on the command line and in files.
        recovery, method: as ``Query.sink`` has them; None: nobody stands by.
    """

    key: str
    recovery: str | None
    method: str | None

    @property
    def title(self) -> str:
        return self.key.replace("_", " ")

    @property
    def wish(self) -> dict[str, str]:
        """Arguments of ``Query.sink``."""
        if self.recovery is None or self.method is None:
            return {}
        return {"recovery": self.recovery, "method": self.method}

    @property
    def has_interval(self) -> bool:
        """Whether it takes checkpoints."""
        return self.method not in (None, AMNESIA)

    @property
    def one_holds(self) -> bool:
        """Of those that may take over one at a time has something of the state."""
        return self.method == STATE_BACKUP

    @property
    def computes(self) -> bool:
        """Who stands by is fed all rows before anything fails."""
        return self.method == ACTIVE

    def broken(self, found: HaAccount, told_lost: int = 0, *, told_unknown: bool = False) -> str:
        """What it promises and hasn't kept; empty: it kept everything.

        Args:
            told_lost: rows that the status says are lost; ``told_unknown``: it says that there are more.
        """
        amount = f"{found.missing:,} missing, {found.doubled:,} doubled, {found.wrong:,} wrong"
        if found.wrong:
            return f"{amount}: {found.example}"
        if self.recovery == "gap":
            if found.doubled:
                return f"{amount}: {found.example}"
            if told_unknown or told_lost != found.missing:
                return f"{amount}; status says {told_lost:,} lost" + (" and more" if told_unknown else "")
            return ""
        if found.missing or (found.doubled and self.recovery != "rollback"):
            return f"{amount}: {found.example}"
        return ""


ALONE = Method("alone", None, None)
"""What every other one is held against."""

BACKED_UP = Method(STATE_BACKUP, "precise", STATE_BACKUP)
"""Held at the entry, which sends to the primary, and then handed to who stands by: ``kills`` alone has it, as
the others set the primary against one secondary that is sent the state."""

_ORDER = (
    (ACTIVE, "precise"),
    (PASSIVE, "precise"),
    (UPSTREAM, "precise"),
    (UPSTREAM, "rollback"),
    (AMNESIA, "gap"),
)


def known_methods() -> dict[str, Method]:
    """By key. A method that promises two kinds of recovery has the weaker one under its bare name."""
    found = {}
    for method, recovery in _ORDER:
        if method in METHODS.get(recovery, ()):
            key = f"precise_{method}" if (method, recovery) == (UPSTREAM, "precise") else method
            found[key] = Method(key, recovery, method)
    return found


def asked_for(text: str, among: Sequence[str] | None = None) -> list[Method]:
    """Those named, by commas.

    Args:
        among: keys that may be named; None: all of ``known_methods``.

    Raises:
        ValueError: one isn't among them.
    """
    known = {**known_methods(), BACKED_UP.key: BACKED_UP}
    may = [each for each in known if each in (known_methods() if among is None else among)]
    asked = [each for each in text.split(",") if each]
    if unknown := [each for each in asked if each not in may]:
        raise ValueError(f"--methods: {', '.join(unknown)} is none of {', '.join(may)}")
    if not asked:
        raise ValueError(f"--methods: none is named; there are {', '.join(may)}")
    return [known[each] for each in asked]
