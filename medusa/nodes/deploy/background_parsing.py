"""Graphs that others send are read beside the loop, so that nobody waits for a large one.

What may be asked from the header and the caller's key alone was asked before. A small graph is read at once,
within a budget of bytes by time. A larger one waits here for its turn: one is read at a time, callers take
turns, and each may have so much waiting. When the peer that sent it goes away, so does its graph: it is sent
again, or nobody waits for it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypeVar

from medusa.errors import QueryError
from medusa.nodes.security.registry import Caller
from medusa.nodes.spec.fragment_spec import FragmentSpec, fragment_from
from medusa.wire.outbox import Outbox, Parse
from medusa.wire.status_and_metrics import ParsingStatus

__all__ = ["BackgroundParsing"]

LOOP_BYTES_MAX = 16 << 10
"""A larger graph is never read on the loop. Too small: each deployment takes a turn of a thread; too large:
it holds up everything else, for 2 to 4 ms per KiB at worst."""

LOOP_BYTES_PER_S = 64 << 10
"""So much is read on the loop, also at once after a rest."""

WAITING_MAX = 128
WAITING_BYTES_MAX = 32 << 20
"""Of all callers together."""

CALLER_WAITING_MAX = 32
CALLER_BYTES_MAX = 8 << 20
"""Of one key, or of one peer where there are no keys."""

AFTER_MAX = 16
"""Orders that wait until one graph has been read; one more is refused, since done at once it would
overtake the graph."""

T = TypeVar("T")


@dataclass(slots=True, kw_only=True)
class _Job(Generic[T]):
    """A graph that is to be read, and what goes on then."""

    peer: str
    about: tuple[str | int, ...]
    query: str
    nbytes: int
    read: Callable[[], T]
    then: Callable[[int, T], None]
    refuse: Callable[[QueryError], None]
    after: list[Callable[[int], None]] = field(default_factory=list)


class BackgroundParsing:
    """What is being read, and what waits for that.

    Args:
        node: ours.
        loop_bytes_max: a larger graph is read beside the loop.
    """

    def __init__(self, node: str, outbox: Outbox, loop_bytes_max: int = LOOP_BYTES_MAX) -> None:
        self._node = node
        self._outbox = outbox
        self.loop_bytes_max = loop_bytes_max
        self._left = LOOP_BYTES_PER_S
        self._left_us = 0
        """Bytes that may be read on the loop, and when that was so."""
        self._token = 0
        self._reading: tuple[int, str, _Job[Any] | None] | None = None
        """Token, caller and job; no job: its peer went away meanwhile. None: nothing is being read."""
        self._waiting: dict[str, deque[_Job[Any]]] = {}
        """By caller; the first one is next."""

    def read(
        self,
        now_us: int,
        peer: str,
        caller: Caller | None,
        about: tuple[str | int, ...],
        *,
        nbytes: int,
        read: Callable[[], T],
        then: Callable[[int, T], None],
        refuse: Callable[[QueryError], None],
        query: str = "",
    ) -> None:
        """Have a graph read, and go on with it; the same question again while it waits changes nothing.

        Args:
            caller: who has the key of ``peer``; None: this node has no keys.
            about: the kind of message and the number of the question.
            read: a pure function that owns all it needs, and may run in another thread; raises QueryError.
            then: goes on, at a time.
            refuse: answers that it can't be read (what ``read`` raised), or not now (``E_BUSY``).
            query: which a client may remove meanwhile; see ``holds``.
        """
        who = peer if caller is None else f"{caller.participant}/{caller.name}"
        if any((job.peer, job.about) == (peer, about) for job in self._jobs()):
            return
        if not self._has(who) and self._on_the_loop(now_us, nbytes):
            try:
                found = read()
            except QueryError as error:
                refuse(error)
            else:
                then(now_us, found)
            return
        if why := self._full(who, nbytes):
            refuse(QueryError(why, hint="try again in a moment", code="E_BUSY"))
            return
        job = _Job(peer=peer, about=about, query=query, nbytes=nbytes, read=read, then=then, refuse=refuse)
        self._waiting.setdefault(who, deque()).append(job)
        self._next()

    def read_fragment(
        self,
        now_us: int,
        peer: str,
        caller: Caller | None,
        about: tuple[str | int, ...],
        data: bytes,
        *,
        then: Callable[[int, FragmentSpec], None],
        refuse: Callable[[QueryError], None],
    ) -> None:
        """Have the spec of a fragment read, which a node has sent; as ``read``.

        Args:
            refuse: answers that it is none (``E_SPEC``), or not now (``E_BUSY``).
        """

        def refused(error: QueryError) -> None:
            code = error.code if error.code == "E_BUSY" else "E_SPEC"
            refuse(QueryError(error.message, hint=error.hint, code=code))

        read = partial(fragment_from, data)
        self.read(now_us, peer, caller, about, nbytes=len(data), read=read, then=then, refuse=refused)

    def holds(self, peer: str, query: str, again: Callable[[int], None]) -> bool:
        """Whether an order about a query waits, since a graph of that name, which the same peer sent before,
        hasn't been read.

        Args:
            again: gives the order once more, at a time.

        Raises:
            QueryError: as many orders wait for that graph as may (``E_BUSY``). Nothing changed.
        """
        jobs = [job for job in self._jobs() if (job.peer, job.query) == (peer, query)]
        if not jobs:
            return False
        if (count := len(jobs[-1].after)) >= AFTER_MAX:
            text = f"{count} orders about query {query[:100]!r} wait until node {self._node!r} has read it"
            raise QueryError(text, hint="wait for the answers to those", code="E_BUSY")
        jobs[-1].after.append(again)
        return True

    def parsed(self, now_us: int, token: int, found: Any, error: QueryError | None) -> None:
        """A ``Parse`` was done: this came of it, or this is why nothing did."""
        if self._reading is None or self._reading[0] != token:
            return
        job, self._reading = self._reading[2], None
        self._next()
        if job is None:
            return
        if error is not None:
            job.refuse(error)
        else:
            job.then(now_us, found)
        for again in job.after:
            again(now_us)

    def lost(self, peer: str) -> None:
        """A peer went away: nothing of what it sent is read any more."""
        if self._reading is not None and self._reading[2] is not None and self._reading[2].peer == peer:
            self._reading = (*self._reading[:2], None)
        for who, jobs in list(self._waiting.items()):
            kept = deque(job for job in jobs if job.peer != peer)
            if kept:
                self._waiting[who] = kept
            else:
                del self._waiting[who]

    def status(self) -> ParsingStatus:
        """How many wait or are being read, and their bytes."""
        jobs = self._jobs()
        return ParsingStatus(graphs=len(jobs), bytes=sum(job.nbytes for job in jobs))

    def _jobs(self) -> list[_Job[Any]]:
        """In the order in which each caller's are read."""
        under_way = [] if self._reading is None or self._reading[2] is None else [self._reading[2]]
        return under_way + [job for jobs in self._waiting.values() for job in jobs]

    def _has(self, who: str) -> bool:
        """Whether anything of a caller waits or is being read: what it sends then doesn't overtake that."""
        return who in self._waiting or (self._reading is not None and self._reading[1] == who)

    def _on_the_loop(self, now_us: int, nbytes: int) -> bool:
        if nbytes > self.loop_bytes_max:
            return False
        earned = (now_us - self._left_us) * LOOP_BYTES_PER_S // 1_000_000
        left = min(self._left + max(earned, 0), LOOP_BYTES_PER_S)
        if nbytes > left:
            return False
        self._left, self._left_us = left - nbytes, now_us
        return True

    def _full(self, who: str, nbytes: int) -> str:
        """Why there is no room for another one; empty: there is."""
        own = self._waiting.get(who, ())
        if len(own) >= CALLER_WAITING_MAX or sum(job.nbytes for job in own) + nbytes > CALLER_BYTES_MAX:
            return f"{len(own)} graphs that {who!r} sent wait at node {self._node!r}"
        all_jobs = [job for jobs in self._waiting.values() for job in jobs]
        if len(all_jobs) >= WAITING_MAX or sum(job.nbytes for job in all_jobs) + nbytes > WAITING_BYTES_MAX:
            return f"{len(all_jobs)} graphs wait at node {self._node!r}"
        return ""

    def _next(self) -> None:
        """Have the next one read, of the caller whose turn it is."""
        if self._reading is not None or not self._waiting:
            return
        who = next(iter(self._waiting))
        jobs = self._waiting.pop(who)
        job = jobs.popleft()
        if jobs:
            self._waiting[who] = jobs
        self._token += 1
        self._reading = self._token, who, job
        self._outbox.append(Parse(token=self._token, nbytes=job.nbytes, read=job.read))
