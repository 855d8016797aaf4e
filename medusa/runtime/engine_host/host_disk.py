"""What a host does with the disk: groups, decision logs and segments of its fragments, in order."""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial

from medusa.engine.state.background_copy import BackgroundCopy
from medusa.engine.state.checkpoint import DeltaChain
from medusa.errors import StateError
from medusa.nodes.reports import Completion, Copied, Fetched, Logged, Persisted
from medusa.ports import Content, Journal, Store
from medusa.runtime.engine_host.group_names import group_name, segment_name
from medusa.runtime.engine_host.hosted import HostedFragment
from medusa.runtime.engine_host.node_groups import NodeGroups
from medusa.runtime.machine.short_turns import short_turns
from medusa.runtime.store.checkpoint_copy import read_copy
from medusa.runtime.store.segments import read_segment, write_segment
from medusa.wire.outbox import Copy, Fetch, Log, Persist, WriteSegment

__all__ = ["HostDisk"]


CATALOGS_WAITING_MAX = 6
"""A catalog behind which more newer ones wait isn't written: the next one that is has all of it. Each takes
some ten milliseconds, so that who deploys without a rest had all others wait for seconds."""


class HostDisk:
    """Only the disk's thread calls it, but for ``catalog_comes``, and the host before all else.

    Args:
        journal: where decision logs are; None: none can be written, and checkpoints do instead.
        tell: says of a fragment and its life what was done.
        aside: has something done that the next write needn't wait for.
    """

    def __init__(
        self,
        store: Store,
        journal: Journal | None,
        tell: Callable[[str, int, Completion], None],
        aside: Callable[[Callable[[], None]], None],
    ) -> None:
        self._aside = aside
        self._store = store
        self._groups = NodeGroups(store)
        self._secret = secrets.randbits(64), secrets.randbits(64)
        self._journal = journal
        self._tell = tell
        self._logs: dict[tuple[str, int], set[int]] = {}
        """Fragment and its life -> files of its log."""
        self._catalogs: deque[int] = deque()
        """Tokens of those that are to be written, in order."""
        self._passed_over: list[int] = []
        """Of those that weren't, since newer ones come."""

    def stands(self, catalog: int, marked: Iterable[str]) -> None:
        """What was found: as ``EngineHost.stands``."""
        self._groups = NodeGroups(self._store, catalog=catalog, marked=marked)

    def resume(self, name: str, life: int, logs: Iterable[int]) -> None:
        """Files that the log of a fragment has."""
        self._logs[name, life] = set(logs)

    def sweep(self, name: str) -> None:
        """Delete all groups of that name."""
        self._groups.sweep(name, ())

    def write(
        self,
        running: HostedFragment,
        effect: Persist,
        state: BackgroundCopy,
        before: DeltaChain | None = None,
    ) -> None:
        """Write a checkpoint, or the catalog.

        Args:
            before: what it may be a delta on.
        """
        if effect.fragment:
            self._write(running, effect, state, before)
            return
        self._catalogs.popleft()
        if len(self._catalogs) > CATALOGS_WAITING_MAX:
            self._passed_over.append(effect.token)
            return
        # Answers wait for it. Each of some thirty calls of its write waits for the loop, which somebody may
        # not let rest.
        with short_turns():
            self._write(running, effect, state, before)

    def catalog_comes(self, token: int) -> None:
        """From any thread, before ``write`` of it is given to the disk's."""
        self._catalogs.append(token)

    def _write(
        self,
        running: HostedFragment,
        effect: Persist,
        state: BackgroundCopy,
        before: DeltaChain | None,
    ) -> None:
        try:
            files: dict[str, Content] = dict(effect.files)
            known = state.known()
            if before is None or not running.keeps(before):
                if known.partial:
                    raise StateError("what it is a delta on is not there any more", code="state.missing")
                before = DeltaChain()
            name = group_name(effect.fragment, effect.token)
            link = before.link(name, state.contents(), known, self._secret if effect.fragment else None)
            sum = self._groups.write(effect.fragment, effect.token, {**link.files, **files}, link.facts)
            chain = link.chain.sealed(sum, known)
        except (StateError, MemoryError) as error:
            self._persisted(effect, running.life, False, str(error))
            return
        self._persisted(effect, running.life, True)
        running.wrote(effect.token, effect.keep, chain)
        kept = {*running.needed, *(token for tokens in running.needed.values() for token in tokens)}
        if not effect.fragment:  # Who takes something over writes several, and rows wait for each.
            self._aside(partial(self._groups.sweep, "", kept, effect.token))
            return
        self._groups.sweep(effect.fragment, kept, effect.token)
        self._let_go(effect.fragment, running.life, min(running.needed))

    def _persisted(self, effect: Persist, life: int, ok: bool, why: str = "") -> None:
        """Of a catalog also of those that it was written instead of."""
        if not effect.fragment:
            for token in self._passed_over:
                self._tell("", life, Persisted(token, ok, why))
            self._passed_over.clear()
        self._tell(effect.fragment, life, Persisted(effect.token, ok, why))

    def log(self, effect: Log, life: int) -> None:
        try:
            if self._journal is None:
                raise StateError("there is no place for decision logs", code="state.log")
            self._logs.setdefault((effect.fragment, life), set()).add(effect.number)
            self._journal.append(effect.number, effect.data)
            self._journal.sync(effect.number)
        except StateError as error:
            self._tell(effect.fragment, life, Logged(effect.fragment, False, str(error)))
            return
        self._tell(effect.fragment, life, Logged(effect.fragment, True))

    def spill(self, effect: WriteSegment, life: int) -> None:
        try:
            write_segment(self._store, segment_name(effect.fragment, effect.token), effect)
        except StateError as error:
            self._tell(effect.fragment, life, Persisted(effect.token, False, str(error)))
            return
        self._tell(effect.fragment, life, Persisted(effect.token, True))

    def fetch(self, effect: Fetch, life: int) -> None:
        payloads: tuple[bytes, ...] = ()
        why = ""
        try:
            payloads = read_segment(self._store, segment_name(effect.fragment, effect.token), effect)
        except StateError as error:
            why = str(error)
        self._tell(effect.fragment, life, Fetched(effect.fragment, effect.token, payloads, why))

    def copy(self, effect: Copy, life: int) -> None:
        name = effect.fragment

        def group(token: int, segment: bool) -> str:
            return segment_name(name, token) if segment else group_name(name, token)

        try:
            found = read_copy(
                self._store, name, effect.token, group, base=effect.base, base_sum=effect.base_sum
            )
        except StateError as error:
            self._tell(name, life, Copied(name, effect.token, {}, str(error)))
            return
        copied = Copied(name, effect.token, found.files, sum=found.sum, base=found.base, deltas=found.deltas)
        self._tell(name, life, copied)

    def forget(self, name: str, life: int) -> None:
        self._groups.sweep(name, ())
        self._let_go(name, life, None)
        self._logs.pop((name, life), None)

    def _let_go(self, fragment: str, life: int, before: int | None) -> None:
        """Remove files of a log from before this token, or all. One that stays does no harm."""
        logs = self._logs.get((fragment, life), set())
        for number in sorted(each for each in logs if before is None or each < before):
            try:
                if self._journal is not None:
                    self._journal.remove(number)
            except StateError:
                return
            logs.discard(number)
