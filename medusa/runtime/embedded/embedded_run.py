"""Queries inside a program: ``md.collect``, ``md.start``, ``md.restore``."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Any

from medusa.engine.bounded_run import run_bounded
from medusa.engine.logged_fragment import LoggedFragment
from medusa.engine.state.checkpoint import Checkpoints
from medusa.engine.state.evolve import EvolutionPlan, plan
from medusa.engine.warnings import warn_user
from medusa.errors import CheckpointWarning, QueryError, StateError
from medusa.query.boxes import Graph
from medusa.query.codec import graph_from_json, refuse_unregistered
from medusa.query.graph import label_of
from medusa.query.user_registry import check_functions
from medusa.runtime.embedded.collected import Collected
from medusa.runtime.embedded.decision_log import DECISIONS, begin_log, first_log, go_on_with_log, logs_of
from medusa.runtime.embedded.memory_options import bounds_of, bounds_of_settings, check_sheds
from medusa.runtime.embedded.metrics_service import serving
from medusa.runtime.embedded.ordered_worker import ordering_of
from medusa.runtime.embedded.query_argument import graph_of
from medusa.runtime.embedded.resources import RunResources, checkpoints_in, given_up, holding, workers_of
from medusa.runtime.embedded.run import Run
from medusa.runtime.machine.clock import SystemClock
from medusa.runtime.machine.event_loop import LoopTasks
from medusa.runtime.store.folder_store import FolderStore, path_of
from medusa.runtime.store.history_store import check_in_memory, keeps_history, place_of, warn_unreadable
from medusa.runtime.store.journal import FolderJournal
from medusa.runtime.store.run_folders import check_folders
from medusa.units import Duration, byte_count, duration_us

if TYPE_CHECKING:
    from medusa.ports import Clock
    from medusa.query.builder import Query

__all__ = ["Collected", "collect", "restore", "start"]


def collect(q: Query, /, *, threads: Any = 1, **tables: Any) -> Collected:
    """Run a query over bounded input, to its end.

    All sources are fed merged by time, in slices; ties in the order of their definition.

    Args:
        threads: how many work: windows and joins are split by their keys. The rows, their order and
            their bits are the same. (The rows of a source that is named ``threads``, where there is one.)
        tables: for each source its rows: anything with the Arrow PyCapsule interface, or a dict of
            columns. The slack of a source that declares none is measured: nothing is late.

    Returns:
        Sink -> ``pyarrow.Table``; ``.only`` where there is one sink.

    Raises:
        QueryError: the query has no source or no sink.
        DataError: rows for an unknown source or none for a known one, or rows that don't fit.
    """
    graph = graph_of(q)
    if "threads" in q.sources:
        tables["threads"], threads = threads, 1
    workers, tasks = workers_of(threads), LoopTasks()
    with ExitStack() as held:
        held.callback(tasks.close)
        if workers is not None:
            held.callback(workers.close)
        outputs, stats = run_bounded(graph, tables, functions=q.functions, tasks=tasks, workers=workers)
    return Collected(graph.name, outputs, stats)


def start(
    q: Query,
    *,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: Duration | None = "1s",
    memory: str | int = "1 GiB",
    queue: str | int | None = None,
    on_error: str = "dead",
    threads: int = 1,
    clock: Clock | None = None,
    history: str | os.PathLike[str] | None = None,
    spill: str | os.PathLike[str] | None = None,
    state_budget: str | int | None = None,
    at_limit: str = "error",
    metrics: str | None = None,
    metrics_public: bool = False,
) -> Run:
    """Run a query inside this program, live.

    Args:
        checkpoint: a folder for checkpoints, which holds none yet; the first, of no rows, is there when this
            returns.
        checkpoint_every: write one at the end of a push when the last is so old, or of a large state begin it
            there; None: only by ``run.checkpoint()`` and when the run is closed.
        memory: output not yet taken, beyond which rows go to disk (``spill=``) or else ``push`` raises
            ``FullError`` or, with several threads and unless told ``wait=False``, waits until another thread
            has taken some.
        queue: rows that wait to be worked on, such as ``"64 MiB"``: ``push`` puts them there and returns,
            waits where there is no room, and a thread of the run works them off (``flush`` waits for it);
            docs/shedding.md. Outputs with latency graphs then take precedence by them; docs/qos.md. None:
            ``push`` does the work.
        on_error: ``dead``: leave out rows on which an expression fails, and count them; ``stop``:
            raise ``DataError`` at the push, after which the run takes nothing more.
        threads: how many work at a push: windows and joins are split by their keys. The rows, their
            order and their bits are the same. With 2 or more, any thread may call the run; callers
            wait for each other.
        clock: tells for how long a source has been idle, when a checkpoint is due and how busy boxes
            are; None: that of the machine. ``md.testing.ManualClock`` stands until it is moved.
        history: a folder for the histories of connection points, which holds none yet; None: they are
            kept in memory, each within its ``keep_bytes`` or 64 MiB, together less than ``state_budget=``.
        spill: a folder for what doesn't fit in memory while this run lasts; docs/storage.md.
        state_budget: what all state may take in memory; None: no bound.
        at_limit: beyond it, ``error``: ``push`` raises ``StateError``, and nothing enters, until a boundary
            has closed windows; ``spill``: boxes with keys go to disk, and only what can't raises; ``shed``:
            rows are left out by quality of service until windows have closed (needs ``queue=``).
        metrics: serve the figures of ``stats()`` over HTTP at ``host:port``, for Prometheus and
            ``medusa top``, until the run is closed; see docs/metrics.md. Port 0 takes a free one, which
            ``run.metrics_address`` tells.
        metrics_public: the address may be one that other machines reach.

    Raises:
        QueryError: the query can't run so.
        StateError: a folder can't be used, or holds checkpoints or history already.
    """
    graph = graph_of(q)
    workers = workers_of(threads)
    settings = _settings(memory, on_error, checkpoint_every, queue)
    settings["history"] = history is not None
    bounds = bounds_of(
        spill, memory_bytes=settings["memory_bytes"], state_budget=state_budget, at_limit=at_limit
    )
    settings |= bounds.settings
    check_sheds(settings, graph)
    check_in_memory(graph, settings)
    check_folders(checkpoint=checkpoint, history=history, spill=spill)
    clock = clock or SystemClock()
    if checkpoint is not None:
        refuse_unregistered(graph, "checkpoint=")
    bounded = spill is not None or at_limit == "shed"
    ordering = ordering_of(
        graph, clock, queued=queue is not None, durable=checkpoint is not None, bounded=bounded
    )
    place = place_of(history, graph)
    with holding() as held:
        parts = RunResources.of(held, workers=workers, clock=clock, place=place, bounds=bounds)
        fragment = LoggedFragment(
            graph, on_error=on_error, functions=q.functions, scheduler=ordering, **parts.of_fragment()
        )
        store = checkpoints = None
        if checkpoint is not None:
            store = held.enter_context(closing(FolderStore(checkpoint, sweep=False)))
            checkpoints = _no_checkpoints_yet(store, checkpoint)
        place.open(fresh=True)
        if checkpoint is not None:
            begin_log(fragment, held.enter_context(closing(FolderJournal(checkpoint))), settings)
        run = serving(
            parts.run(fragment, settings, ordering=ordering, checkpoints=checkpoints),
            metrics,
            public=metrics_public,
        )
        with given_up(run):
            parts.sweep(store)
            if checkpoints is not None:
                run.checkpoint()  # from here on there is something to go back to
        return run


def _settings(
    memory: str | int, on_error: str, checkpoint_every: Duration | None, queue: str | int | None
) -> dict[str, Any]:
    """What a checkpoint says of the arguments of ``start``, but for bounds and history."""
    every_us = None
    if checkpoint_every is not None:
        every_us = duration_us(checkpoint_every, what="checkpoint_every", minimum_us=1)
    return {
        "memory_bytes": byte_count(memory, what="memory"),
        "on_error": on_error,
        "checkpoint_every_us": every_us,
        "queue_bytes": None if queue is None else byte_count(queue, what="queue"),
    }


def _no_checkpoints_yet(store: FolderStore, path: str | os.PathLike[str]) -> Checkpoints:
    """A folder for checkpoints; it holds none."""
    checkpoints = checkpoints_in(store)
    if checkpoints.names():
        raise StateError(
            f"{store.where('')}: holds checkpoints already",
            hint=f"go on from them with md.restore({os.fspath(path)!r}), or use another folder",
            code="state.exists",
        )
    return checkpoints


def restore(
    path: str | os.PathLike[str],
    *,
    q: Query | None = None,
    reset: Sequence[str] = (),
    strict: bool = False,
    checkpoint: str | None = None,
    decisions: str = "all",
    functions: Sequence[object] = (),
    threads: int = 1,
    clock: Clock | None = None,
    history: str | os.PathLike[str] | None = None,
    spill: str | os.PathLike[str] | None = None,
    state_budget: str | int | None = None,
    at_limit: str | None = None,
    metrics: str | None = None,
    metrics_public: bool = False,
) -> Run:
    """A run that goes on from its last checkpoint; push rows from its ``positions()``.

    Args:
        path: the folder that ``start`` was given.
        q: a changed form of the query, which takes over the state of every box that is still the same:
            same id, parameters and input columns. The others begin empty at the boundaries of this
            moment, and state that nobody takes is dropped: a ``CheckpointWarning`` names all of them.
        reset: boxes of ``q`` that begin empty although there is state of that name.
        strict: refuse where a box would begin empty or state be dropped, but for ``reset``.
        checkpoint: the name of an earlier one, such as ``checkpoint-000000041``. Newer ones stay until the
            run has come as far again; docs/checkpoints.md.
        decisions: ``all``: refuse where some of what was decided after the checkpoint can't be read;
            ``readable``: go on with what is before that, with a ``CheckpointWarning``. Then rows that come
            again may come in another order.
        functions: those that the query names, so that their modules are surely imported.
        threads: as of ``start``; not necessarily as many as wrote the checkpoint.
        clock: as of ``start``.
        history: the folder that ``start`` was given for histories, which go on where the checkpoint
            stands; another one, or none yet: they begin there, empty.
        spill: a folder as of ``start``, the same or another: a run that had one needs one.
        state_budget, at_limit: as of ``start``; None: as they were.
        metrics, metrics_public: as of ``start``.

    Raises:
        QueryError: the query names functions that aren't registered (says which, and of which box), or
            ``q`` can't run with checkpoints.
        StateError: no checkpoint, one that is damaged (names the file, and says whether an earlier
            one is whole), a decision log that is damaged (names the file and the byte), a folder in use, a
            box of ``q`` that isn't what it was (says what changed), or a history that lacks rows before the
            checkpoint. Nothing was changed in any folder.
    """
    if decisions not in DECISIONS:
        raise QueryError(f'decisions is "all" or "readable", got {decisions!r:.80}', code="query.argument")
    workers = workers_of(threads)
    changed = None if q is None else graph_of(q)
    if changed is not None:
        refuse_unregistered(changed, "checkpoint=")
    check_folders(checkpoint=path_of(path), history=history, spill=spill)
    with holding() as held:
        store = held.enter_context(closing(FolderStore(path, create=False, sweep=False)))
        checkpoints, where = checkpoints_in(store), store.where("")
        manifest, files = checkpoints.load(checkpoint)
        before, settings = _read_manifest(manifest, where)
        graph = changed or before
        check_functions({label_of(box): box.functions for box in graph.boxes}, functions)
        _check_history(settings, history, graph)
        bounds = bounds_of_settings(
            settings, spill, state_budget=state_budget, at_limit=at_limit, where=where
        )
        check_sheds(settings, graph)
        check_in_memory(graph, settings)
        place = place_of(history, graph)
        made = plan(graph, files, before=before, raw=manifest["query"], reset=reset)
        _tell(made, reset, strict=strict or changed is None)
        name = checkpoint or checkpoints.names()[-1]
        journal = held.enter_context(closing(FolderJournal(path)))
        logs = logs_of(journal, first_log(manifest, name), decisions)
        parts = RunResources.of(held, workers=workers, clock=clock, place=place, bounds=bounds)
        place.open(fresh=False)
        fragment = LoggedFragment.restore(
            graph, files, on_error=settings["on_error"], plan=made, settles=False, **parts.of_fragment()
        )
        known = {name: first_log(manifest, name), **checkpoints.logs_ahead()}
        left_out = go_on_with_log(
            fragment, journal, logs, settings, manifest=manifest, known=known, made=made, strict=strict
        )
        run = serving(parts.run(fragment, settings, checkpoints=checkpoints), metrics, public=metrics_public)
        with given_up(run):
            warn_unreadable(fragment.connections)
            # All has been looked at and the run can go on: now, and not before, files may change.
            fragment.connections.settle()
            if left_out:
                run.checkpoint()  # the logs stay beside the checkpoint that they stand on
            else:
                logs.settle(journal)
            parts.sweep(store)
        return run


def _check_history(settings: dict[str, Any], history: object, graph: Graph) -> None:
    """Refuse to go on without the history that is on disk; note where it is from now on."""
    if settings.get("history") is True and history is None and keeps_history(graph):
        raise StateError(
            "the histories of this run are in a folder, which restore must be given too",
            hint='restore(..., history="folder"); a new one begins empty',
            code="state.history",
        )
    settings["history"] = history is not None


def _tell(made: EvolutionPlan, reset: Sequence[str], *, strict: bool) -> None:
    """Say which boxes don't go on as they were; ``strict``: refuse unless that was asked for."""
    asked = set(reset)
    if strict and not asked.issuperset([*made.fresh, *made.dropped]):
        raise StateError(
            f"the query isn't the one that left this state: {made}",
            hint="restore(..., strict=False) lets it; reset=[...] names boxes that may begin empty",
            code="state.graph",
        )
    if made.fresh or made.dropped:
        warn_user(f"the query has changed since the checkpoint: {made}", CheckpointWarning)


def _read_manifest(manifest: dict[str, Any], where: str) -> tuple[Graph, dict[str, Any]]:
    try:
        settings = manifest["settings"]
        text = json.dumps(manifest["query"])
        for name in ("memory_bytes", "on_error", "checkpoint_every_us"):
            settings[name]
    except (KeyError, TypeError):
        raise StateError(f"{where}: not the checkpoint of a run", code="state.corrupt") from None
    try:
        return graph_from_json(text), settings
    except QueryError as error:
        raise StateError(f"{where}: its query can't be read: {error}", code="state.corrupt") from None
