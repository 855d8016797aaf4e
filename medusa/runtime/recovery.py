"""What a node finds in its data folder when it starts: the catalog, and each fragment's last state."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from medusa.engine.checkpoint import unseal
from medusa.engine.fragment import Fragment
from medusa.errors import QueryError, StateError
from medusa.mind.catalog import CATALOG, Catalog
from medusa.mind.checkpointing import Saved
from medusa.mind.decisions import Decision, unpack
from medusa.mind.record import LOG, RECORD, read_record
from medusa.mind.spec import Fragment as Spec
from medusa.ports import Buffer, Clock, Journal, Store
from medusa.runtime.group_names import group_name, group_token
from medusa.runtime.host import FragmentHost

__all__ = ["Found", "recover"]

LIFE = re.compile(r"life-(\d{12})")


@dataclass(slots=True, kw_only=True)
class Found:
    """The state of a node at its start.

    Attributes:
        incarnation: of this life.
        first_token: no group on disk has it or a larger one.
        catalog: empty where there was none.
        saved: per fragment with a whole checkpoint, what the mind needs.
        fragments: every installed fragment: restored, or from nothing.
        needed: per fragment, the groups on which its checkpoint depends; of the catalog, its own.
        logs: per fragment, the files of its decision log.
    """

    incarnation: int
    first_token: int
    catalog: Catalog
    saved: dict[str, Saved] = field(default_factory=dict)
    fragments: dict[str, Fragment] = field(default_factory=dict)
    needed: dict[str, dict[int, tuple[int, ...]]] = field(default_factory=dict)
    logs: dict[str, list[int]] = field(default_factory=dict)

    def resume(self, host: FragmentHost) -> None:
        """Hand over what was found, before anything else is given to the host."""
        host.resume("", None, self.needed.get("", {}))
        for name, fragment in self.fragments.items():
            host.resume(name, fragment, self.needed.get(name, {}), self.logs.get(name, ()))


def recover(
    store: Store,
    clock: Clock,
    *,
    node: str,
    warn: Callable[[str], None],
    journal: Journal | None = None,
) -> Found:
    """Read the newest whole state; what is damaged is told to ``warn`` and the one before used.

    Raises:
        StateError: the folder belongs to another node, all its catalogs are damaged, or it can't be
            read or written.
    """
    names = store.names()
    tokens = [int(name[-12:]) for name in names if re.fullmatch(r"[a-z0-9]+(-log)?-\d{12}", name)]
    tokens += journal.numbers() if journal is not None else ()
    incarnation = _next_life(store, names, clock)
    token, catalog = _catalog(store, names, node, warn)
    found = Found(incarnation=incarnation, first_token=max(tokens, default=0) + 1, catalog=catalog)
    if token is not None:
        found.needed[""] = {token: ()}
    for spec in found.catalog.fragments.values():
        _fragment(store, names, clock, spec, found, warn)
    if journal is not None:
        _decisions(journal, found, warn)
    _sweep(store, names, found.catalog)
    return found


def _sweep(store: Store, names: list[str], catalog: Catalog) -> None:
    """Delete groups of fragments that aren't here (any more): a crash came between two deletions. One that
    can't be deleted stays until the next start."""
    owners = {group_name(name, 0).rpartition("-")[0] for name in catalog.fragments}
    for name in names:
        group = re.fullmatch(r"([0-9a-f]{24})(-log)?-\d{12}", name)
        if group is not None and group[1] not in owners:
            try:
                store.delete(name)
            except StateError:
                return


def _next_life(store: Store, names: list[str], clock: Clock) -> int:
    """A number larger than that of any life before, also where the folder was lost in between."""
    old = [name for name in names if LIFE.fullmatch(name)]
    life = max([int(name[-12:]) + 1 for name in old] + [clock.now_us() // 1_000_000])
    store.write(f"life-{life:012d}", {})
    for name in old:
        store.delete(name)
    return life


def _read(store: Store, name: str, fragment: str) -> dict[str, Buffer]:
    """A whole group, if it is the one that was written under this name."""
    facts, files = unseal(store.read(name), store.where(name))
    if (facts.get("fragment"), facts.get("token")) != (fragment, group_token(fragment, name)):
        raise StateError(
            f"{store.where(name)} was written as another one: {facts.get('fragment')!r:.80}, number "
            f"{facts.get('token')!r:.20}",
            hint="move it away, or put back the one that belongs here",
            code="state.owner",
        )
    return files


def _catalog(
    store: Store, names: list[str], node: str, warn: Callable[[str], None]
) -> tuple[int | None, Catalog]:
    """The newest that is whole, and its token; None where there was none."""
    groups = [name for name in names if group_token("", name) is not None]
    for name in reversed(groups):
        try:
            data = _read(store, name, "").get(CATALOG, b"")
            return group_token("", name), Catalog.from_bytes(
                data, node=node, where=store.where(name, CATALOG)
            )
        except StateError as error:
            if error.code == "state.node":
                raise
            warn(f"{error}; trying the one before")
    if groups:
        raise StateError(
            f"{store.where('')}: no catalog there is whole, so what ran here can't be known",
            hint="move the folder away to start from nothing",
            code="state.catalog",
        )
    return None, Catalog(node)


def _fragment(
    store: Store, names: list[str], clock: Clock, spec: Spec, found: Found, warn: Callable[[str], None]
) -> None:
    groups = [name for name in names if group_token(spec.name, name) is not None]
    for name in reversed(groups):
        try:
            files = _read(store, name, spec.name)
            record = read_record(files.pop(RECORD, b""), where=store.where(name, RECORD))
            own = files.pop(LOG, b"")
            logs: Mapping[int, Buffer] = {
                token: own if token == record.token else _log(store, spec.name, token)
                for token in record.tokens()
                if token not in record.segments()
            }
            found.fragments[spec.name] = Fragment.restore(spec.graph, files, clock=clock)
            found.saved[spec.name] = Saved(record=record, logs=logs)
            found.needed[spec.name] = {record.token: record.tokens()}
            return
        except (StateError, QueryError) as error:
            warn(f"fragment {spec.name}: {error}; trying the one before")
    if groups:
        warn(f"fragment {spec.name}: no checkpoint is whole; it begins anew, and tells what rows it misses")
    found.fragments[spec.name] = Fragment(spec.graph, clock=clock)


def _log(store: Store, fragment: str, token: int) -> Buffer:
    return _read(store, group_name(fragment, token), fragment).get(LOG, b"")


def _decisions(journal: Journal, found: Found, warn: Callable[[str], None]) -> None:
    """What each fragment was fed after its checkpoint: what follows that without a gap, and nothing else.

    What is used is synced: it may have been read before it was durable. What isn't is removed, since
    decisions of this life will bear its numbers.
    """
    decided: dict[str, int] = {}
    again: dict[str, list[Decision]] = {}
    for name in found.catalog.fragments:
        record = found.saved[name].record if name in found.saved else None
        decided[name] = record.decided if record is not None else 0
    for number in journal.numbers():
        data = journal.read(number)
        records, length = unpack(data)
        name = records[0].fragment if records else ""
        if name not in decided or any(each.fragment != name for each in records):
            journal.remove(number)
            continue
        if records[0].first > decided[name]:
            missing = records[0].first - decided[name]
            warn(
                f"fragment {name}: {journal.where(number)} comes {missing} decisions too late, and isn't used"
            )
            journal.remove(number)
            continue
        if length < memoryview(data).nbytes:
            journal.cut(number, length)
        else:
            journal.sync(number)
        found.logs.setdefault(name, []).append(number)
        for each in records:
            new = max(each.end - decided[name], 0)
            again.setdefault(name, []).extend(each.decisions()[-new:] if new else ())
            decided[name] += new
    for name, decisions in again.items():
        if decisions and not _known(decisions, found.catalog.fragments[name]):
            warn(f"fragment {name}: its decision log names inputs that it doesn't have, and is not used")
            for number in found.logs.pop(name):
                journal.remove(number)
        elif decisions:
            saved = found.saved.get(name, Saved(record=None, logs={}))
            found.saved[name] = replace(saved, decisions=decisions)


def _known(decisions: list[Decision], spec: Spec) -> bool:
    """Whether they can be about this fragment at all. A stream may have moved to another node since."""
    sources = {*spec.entries, *(feed.source for feed in spec.feeds)}
    return all(each.source in sources for each in decisions)
