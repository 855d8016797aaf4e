"""The decision log of a run in a folder of checkpoints: begun, or read and done again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from medusa.engine.logged_fragment import LoggedFragment
from medusa.engine.overload.controller import has_qos
from medusa.engine.recovery.decision_log import DecisionLog, FoundLogs, find_logs
from medusa.engine.recovery.decisions import Entry, Sheds
from medusa.engine.state.evolve import EvolutionPlan
from medusa.engine.warnings import warn_user
from medusa.errors import CheckpointWarning, StateError
from medusa.ports import Journal

__all__ = ["DECISIONS", "begin_log", "first_log", "go_on_with_log", "logs_of"]

DECISIONS = ("all", "readable")
"""What a restore takes: all that was synced, or as much as can be read."""


def begin_log(fragment: LoggedFragment, journal: Journal, settings: Mapping[str, Any]) -> None:
    """Give a new run its log. Logs that lie there without a checkpoint go with the first one of this run.

    Raises:
        StateError: decisions were synced there, so a run wrote checkpoints that are gone now.
    """
    numbers = journal.numbers()
    for number in numbers:
        mark = journal.synced(number)
        if mark is not None and mark.length:
            raise StateError(
                f"{journal.where(number)}: holds {mark.length} bytes of decisions of a run, and its"
                " checkpoints are gone",
                hint="put its checkpoints back and go on with md.restore, or use another folder",
                code="state.exists",
            )
    if _may_shed(fragment, settings):
        fragment.shed()
    fragment.record(DecisionLog(journal, max(numbers, default=0) + 1), held_bytes=_held_bytes(settings))


def first_log(manifest: Mapping[str, Any], name: str) -> int:
    """The number of the log that begins after a checkpoint.

    Raises:
        StateError: the manifest says none.
    """
    first = manifest.get("decisions", 1)
    if type(first) is not int or first < 1:
        raise StateError(f"{name}: not the checkpoint of a run", code="state.corrupt")
    return first


def logs_of(journal: Journal, first: int, decisions: str) -> FoundLogs:
    """What was decided after a checkpoint. Nothing is changed.

    Args:
        first: the number of the log that begins after it.
        decisions: one of ``DECISIONS``. ``readable``: what is missing is told by a warning.

    Raises:
        StateError: some of it was synced and can't be read.
    """
    found = find_logs(journal, first)
    if found.damage is not None:
        if decisions == "all":
            raise found.damage
        warn_user(f"{found.damage.message}: the run goes on without them", CheckpointWarning)
    return found


def go_on_with_log(
    fragment: LoggedFragment,
    journal: Journal,
    found: FoundLogs,
    settings: Mapping[str, Any],
    *,
    manifest: Mapping[str, Any],
    known: Mapping[str, int],
    made: EvolutionPlan,
    strict: bool,
) -> bool:
    """Give a restored run its log, and let it do again what was decided after its checkpoint.

    Nothing is changed on disk: ``found.settle`` comes when the run can be made.

    Args:
        manifest: of the checkpoint.
        known: of checkpoints, the number of the log that begins after each.
        made: what became of each box. A changed query begins without what was decided, with a warning.
        strict: refuse that.

    Returns:
        Some decisions were left out: a checkpoint has to be written before a row leaves.

    Raises:
        StateError: the log doesn't fit.
    """
    state = manifest.get("shedding")
    if state is not None or _may_shed(fragment, settings):  # of windows that are open rows may be gone
        fragment.shed(state)
    entries = found.entries
    left_out = found.damage is not None
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
        entries, left_out = [], True
    log = DecisionLog(journal, found.number)
    fragment.record(log, entries, known=known, held_bytes=_held_bytes(settings))
    return left_out


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
