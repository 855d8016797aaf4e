"""The bounds of memory of a run, as ``md.start`` and ``md.restore`` are told them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from medusa.engine.core.memory_bounds import Storage
from medusa.engine.core.spool import Spool
from medusa.engine.overload.controller import has_qos
from medusa.engine.overload.drop_sites import unbounded
from medusa.errors import QueryError, StateError
from medusa.query.boxes import Graph
from medusa.query.graph import check_graph, label_of
from medusa.runtime.store.spill import FolderSpill
from medusa.units import byte_count

__all__ = ["MemoryBounds", "bounds_of", "bounds_of_settings", "check_sheds"]

LIMITS = ("error", "spill", "shed")


class MemoryBounds:
    """Where a run spills and what its state may take.

    Args:
        spill: the folder; None: nothing goes to disk.
        memory_bytes: of output not taken.
        budget_bytes: of state; None: no bound.
        at_limit: one of ``LIMITS``.
    """

    def __init__(
        self,
        spill: str | os.PathLike[str] | None,
        *,
        memory_bytes: int,
        budget_bytes: int | None,
        at_limit: str,
    ) -> None:
        self._spill = spill
        self._memory_bytes = memory_bytes
        self._budget_bytes = budget_bytes
        self._at_limit = at_limit
        self._folder: FolderSpill | None = None

    @property
    def settings(self) -> dict[str, Any]:
        """What a checkpoint says of them; not the folder, which a file can't be trusted with."""
        return {
            "spill": self._spill is not None,
            "state_budget_bytes": self._budget_bytes,
            "at_limit": self._at_limit,
        }

    def open(self) -> Storage | None:
        """What the engine looks after; None: there are no bounds.

        Raises:
            StateError: the folder can't be used, or another run has it.
        """
        if self._spill is None and self._budget_bytes is None:
            return None
        self._folder = None if self._spill is None else FolderSpill(self._spill)
        return Storage(
            spool=None if self._folder is None else Spool(self._folder),
            memory_bytes=self._memory_bytes,
            budget_bytes=self._budget_bytes,
            spills_state=self._at_limit == "spill",
            sheds_state=self._at_limit == "shed",
        )

    def sweep(self) -> None:
        """Remove what a killed run spilled: nothing of it is state.

        Raises:
            StateError: it can't be removed.
        """
        if self._folder is not None:
            self._folder.sweep()

    def close(self) -> None:
        """Remove what was spilled; safe to call twice, or without ``open``."""
        if self._folder is not None:
            self._folder.close()
            self._folder = None


def bounds_of(
    spill: str | os.PathLike[str] | None,
    *,
    memory_bytes: int,
    state_budget: str | int | None,
    at_limit: str,
) -> MemoryBounds:
    """The bounds that ``md.start`` was given; nothing is done on disk.

    Raises:
        QueryError: they don't fit together.
    """
    if at_limit not in LIMITS:
        raise QueryError(
            f'at_limit is "error", "spill" or "shed", got {at_limit!r:.80}', code="query.at_limit"
        )
    if at_limit == "shed" and state_budget is None:
        raise QueryError(
            'at_limit="shed" without state_budget=',
            hint='start(q, queue="64 MiB", state_budget="256 MiB", at_limit="shed")',
            code="query.at_limit",
        )
    if at_limit == "spill" and (spill is None or state_budget is None):
        missing = "spill=" if spill is None else "state_budget="
        raise QueryError(
            f'at_limit="spill" without {missing}',
            hint='start(q, spill="folder", state_budget="256 MiB", at_limit="spill")',
            code="query.at_limit",
        )
    budget = None if state_budget is None else byte_count(state_budget, what="state_budget")
    if budget == 0:
        raise QueryError("state_budget=0: boxes hold something always", code="query.state_budget")
    return MemoryBounds(spill, memory_bytes=memory_bytes, budget_bytes=budget, at_limit=at_limit)


def check_sheds(settings: Mapping[str, Any], graph: Graph) -> None:
    """Refuse a run that is to shed at its budget of state, and can't always.

    Raises:
        QueryError: it has no input queue, or rows can't be kept away from a box with state: says which.
    """
    if settings.get("at_limit") != "shed":
        return
    if settings.get("queue_bytes") is None:
        raise QueryError(
            'at_limit="shed" without queue=',
            hint='rows are shed by the thread of an input queue: start(..., queue="64 MiB")',
            code="query.at_limit",
        )
    if not has_qos(graph):
        raise QueryError(
            'at_limit="shed", and no sink says what its output is worth',
            hint='q.sink("name", stream, qos=md.QoS(loss=[(100, 1), (0, 0)]))',
            code="query.at_limit",
        )
    boxes = unbounded(check_graph(graph))
    if boxes:
        raise QueryError(
            f'at_limit="shed": {label_of(boxes[0])} keeps state, and rows on their way to it can\'t be shed',
            hint="all sinks below it need qos=, and docs/shedding.md says above which boxes rows are shed",
            code="query.at_limit",
        )


def bounds_of_settings(
    settings: dict[str, Any],
    spill: str | os.PathLike[str] | None,
    *,
    state_budget: str | int | None,
    at_limit: str | None,
    where: str,
) -> MemoryBounds:
    """The bounds of a restored run: those it had, but for what ``md.restore`` was given.

    Raises:
        QueryError: they don't fit together.
        StateError: the checkpoint says something that can't be, or the run spilled and needs a folder.
    """
    budget = settings.get("state_budget_bytes")
    limit = settings.get("at_limit", "error")
    spilled = settings.get("spill", False)
    if (
        type(spilled) is not bool
        or limit not in LIMITS
        or not (budget is None or (type(budget) is int and budget > 0))
    ):
        raise StateError(f"{where}: not the checkpoint of a run", code="state.corrupt")
    if spilled and spill is None:
        raise StateError(
            "this run spilled to disk, and restore wasn't told where",
            hint='restore(..., spill="folder"): the one that start was given, or another',
            code="state.spill",
        )
    made = bounds_of(
        spill,
        memory_bytes=settings["memory_bytes"],
        state_budget=budget if state_budget is None else state_budget,
        at_limit=limit if at_limit is None else at_limit,
    )
    settings |= made.settings
    return made
