"""What becomes of an output when a machine on its way is lost for good: what may be wished for, and how."""

from __future__ import annotations

from collections.abc import Iterable

from medusa.errors import QueryError

__all__ = [
    "ACTIVE",
    "AMNESIA",
    "METHODS",
    "METHODS_BY_STRENGTH",
    "PASSIVE",
    "PRECISE_UPSTREAM",
    "STATE_BACKUP",
    "UPSTREAM",
    "check_recovery",
    "methods_for",
    "recovery_line",
    "strongest",
]

AMNESIA = "amnesia"
"""Nothing is kept anywhere: whoever takes over begins empty."""

UPSTREAM = "upstream_backup"
"""Senders keep what the state still needs: whoever takes over begins empty at a mark, and reads it again."""

PRECISE_UPSTREAM = "precise_upstream_backup"
"""The same of a fragment that makes of the same rows the same output again: that has the numbers that it had.
Nobody wishes for it by this name: it is ``UPSTREAM`` of an output that is to be precise."""

PASSIVE = "passive_standby"
"""Who stands by holds checkpoints, and begins from the newest."""

STATE_BACKUP = "state_backup"
"""An upstream node holds checkpoints, and hands what it goes on with to another node (R+SM of SEEP)."""

ACTIVE = "active_standby"
"""Who stands by computes the same, and goes on at once."""

METHODS = {
    "precise": (ACTIVE, PASSIVE, UPSTREAM, STATE_BACKUP),
    "rollback": (UPSTREAM, PASSIVE, ACTIVE),
    "gap": (AMNESIA,),
}
"""Kind of recovery -> the methods that promise it. Where nobody names one it is the first that can be, which
upstream backup can't for every box."""

METHODS_BY_STRENGTH = (AMNESIA, UPSTREAM, PRECISE_UPSTREAM, STATE_BACKUP, PASSIVE, ACTIVE)
"""Each promises what those before it promise; but upstream backup repeats rows, and amnesia never does."""

EXAMPLE = 'recovery="precise", method="active_standby"; left out, rows wait until the machine is back'


def check_recovery(recovery: object, method: object, label: str) -> None:
    """Whether this release can do what is wished for.

    Raises:
        QueryError: it can't; with what it can.
    """
    for what, given, known in (
        ("recovery", recovery, tuple(METHODS)),
        ("method", method, METHODS.get(str(recovery), METHODS["precise"])),
    ):
        if given is None or given in known:
            continue
        hint = EXAMPLE
        if what == "method" and (promised := [kind for kind, of in METHODS.items() if given in of]):
            hint = f'{given} is for recovery="{promised[0]}"'
            hint += f'; recovery="{recovery}" goes by {_listed(known)}' if recovery is not None else ""
        shown = repr(given)[:80] if isinstance(given, str) else type(given).__name__
        raise QueryError(
            f"{label}: {what}: expected {_listed(known)}, got {shown}",
            hint=hint,
            code="query.recovery",
        )
    if method is not None and recovery is None:
        raise QueryError(
            f"{label}: method says how rows are recovered, and recovery is missing",
            hint=EXAMPLE,
            code="query.recovery",
        )


def _listed(names: Iterable[str]) -> str:
    """``'a', 'b' or 'c'``."""
    *others, last = map(repr, names)
    return f"{', '.join(others)} or {last}" if others else last


def methods_for(recovery: str, method: str | None) -> tuple[str, ...]:
    """How that can be brought about: as was wished, or by those that promise it, of which the first is taken
    that the boxes allow."""
    return METHODS[recovery] if method is None else (method,)


def strongest(methods: Iterable[str]) -> str:
    """The one that promises what each of them promises; empty: there are none. Of one that may lose rows and
    one that may repeat them it is the first that does neither."""
    wished = {*methods}
    if {AMNESIA, UPSTREAM} <= wished and PRECISE_UPSTREAM not in wished:
        wished.add(PASSIVE)
    return max(wished, key=METHODS_BY_STRENGTH.index, default="")


def recovery_line(recovery: str | None, method: str | None) -> str:
    """In words: ``recovery precise by active standby``; empty where nobody wished for any."""
    if recovery is None:
        return ""
    first, *others = (each.replace("_", " ") for each in methods_for(recovery, method))
    if first == UPSTREAM.replace("_", " ") and others:
        first += f", or {others[0]} where a box needs it"
    elif first == UPSTREAM.replace("_", " ") and recovery == "precise":
        first += ", and passive standby where clients publish or rows come in no fixed order"
    return f"recovery {recovery} by {first}"
