"""The decision log of a run in a folder of checkpoints: begun, or read and done again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from medusa.engine.decision_log import DecisionLog, read_log
from medusa.engine.decisions import Entry, Sheds
from medusa.engine.evolve import Plan
from medusa.engine.logged import LoggedFragment
from medusa.engine.shedder import has_qos
from medusa.engine.tell import warn_user
from medusa.errors import CheckpointWarning, StateError
from medusa.ports import Journal

__all__ = ["begin_log", "go_on_with_log"]


def begin_log(fragment: LoggedFragment, journal: Journal, settings: Mapping[str, Any]) -> None:
    """Give a new run its log.

    Raises:
        StateError: what a run left that had no checkpoint yet can't be removed.
    """
    for number in journal.numbers():  # of a run that was killed before its first checkpoint
        journal.remove(number)
    if _may_shed(fragment, settings):
        fragment.shed()
    fragment.record(DecisionLog(journal), held_bytes=_held_bytes(settings))


def go_on_with_log(
    fragment: LoggedFragment,
    journal: Journal,
    manifest: Mapping[str, Any],
    settings: Mapping[str, Any],
    *,
    name: str,
    made: Plan,
    strict: bool,
) -> None:
    """Give a restored run its log, and let it do again what was decided after its checkpoint.

    Args:
        name: of the checkpoint.
        made: what became of each box. A changed query begins without what was decided, with a warning.
        strict: refuse that.

    Raises:
        StateError: the log can't be read or is damaged, or doesn't fit.
    """
    first = manifest.get("decisions", 1)
    if type(first) is not int or first < 1:
        raise StateError(f"{name}: not the checkpoint of a run", code="state.corrupt")
    state = manifest.get("shedding")
    if state is not None or _may_shed(fragment, settings):  # of windows that are open rows may be gone
        fragment.shed(state)
    entries, number = read_log(journal, first)
    if entries and (made.fresh or made.dropped or not _same_places(fragment, entries)):
        text = (
            f"{len(entries)} decisions after the checkpoint (explicit boundaries, the order in which"
            " unions took rows, ...) are about the query before it changed"
        )
        if strict:
            raise StateError(
                text, hint="restore the query unchanged and push its rows again first", code="state.graph"
            )
        warn_user(f"{text}: they are left out", CheckpointWarning)
        for each in journal.numbers():
            journal.remove(each)
        entries = []
    log = DecisionLog(journal, number)
    fragment.record(log, entries, known={name: first}, held_bytes=_held_bytes(settings))


def _may_shed(fragment: LoggedFragment, settings: Mapping[str, Any]) -> bool:
    return settings.get("queue_bytes") is not None and has_qos(fragment.graph)


def _same_places(fragment: LoggedFragment, entries: Sequence[Entry]) -> bool:
    """Whether rows can be left out wherever they were, in the same way."""
    keys = {
        key for each in entries if isinstance(each, Sheds) for *_, shares in each.sources for key in shares
    }
    return not keys or (fragment.drops is not None and fragment.drops.sources.keys() >= keys)


def _held_bytes(settings: Mapping[str, Any]) -> int | None:
    """How much may wait for rows of other sources; of a run with a queue, whose pushes have returned, all."""
    queued = settings.get("queue_bytes") is not None
    return None if queued else settings["memory_bytes"]
