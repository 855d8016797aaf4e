"""What a node does with what it finds in its data folder when it starts.

All is read and checked first (``folder_contents``); then it is decided here what stands and what is in
doubt; only then anything is deleted. Where the newest catalog was lost nothing is: an older one doesn't say
what came after it, so what it doesn't name may be a query's only state.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from medusa.engine.fragment import Fragment
from medusa.engine.state.checkpoint import seal
from medusa.errors import QueryError, StateError
from medusa.nodes.catalog.catalog import CATALOG, Catalog
from medusa.nodes.catalog.in_doubt import FragmentInDoubt
from medusa.nodes.fragment.checkpointing import SavedCheckpoint
from medusa.nodes.repair.doubtful_parts import begin_doubt, lost_state, older_state, others_have
from medusa.nodes.spec.fragment_spec import FragmentSpec as Spec
from medusa.nodes.spec.fragment_spec import fragment_from
from medusa.ports import Buffer, Clock, NodeJournal, Store
from medusa.runtime.engine_host.group_names import GroupName, catalog_names, life_names, owner_of
from medusa.runtime.engine_host.host import EngineHost
from medusa.runtime.engine_host.node_groups import write_catalog
from medusa.runtime.repair.folder_contents import FoundCatalog, fragment_of, newest_checkpoint, read_catalogs
from medusa.runtime.repair.found_decisions import Unused, find_decisions

__all__ = ["NodeFolder", "StartupState", "recover"]

UNKNOWN_LIVES = 3600
"""A life is numbered by the second in which it began, or by one more than the last: no node is so many
ahead of the clock."""
BEGUN_KINDS = ("checkpoint", "first checkpoint mark")
FRAGMENT_KINDS = ("checkpoint", "output segment", "first checkpoint mark")


@dataclass(slots=True, kw_only=True)
class StartupState:
    """The state of a node at its start.

    Attributes:
        incarnation: of this life; 0: ``recover`` wasn't told to begin one.
        first_token: no group on disk has it or a larger one.
        catalog: empty where there was none; what is in doubt is in ``catalog.in_doubt`` alone.
        token: the number of the catalog that was used; 0: there was none.
        saved: per fragment with a whole checkpoint, what the mind needs; also of those in doubt.
        fragments: every installed fragment, and every one in doubt: restored, or from nothing.
        needed: per fragment, the groups on which its checkpoint depends; of the catalog, its own.
        logs: per fragment, the files of its decision log.
        begun: owners (``group_names.owner_of``) that have had a checkpoint.
        marked: those of which a mark says so. The others get theirs with the next checkpoint.
    """

    incarnation: int = 0
    first_token: int
    catalog: Catalog
    token: int = 0
    saved: dict[str, SavedCheckpoint] = field(default_factory=dict)
    fragments: dict[str, Fragment] = field(default_factory=dict)
    needed: dict[str, dict[int, tuple[int, ...]]] = field(default_factory=dict)
    logs: dict[str, list[int]] = field(default_factory=dict)
    begun: set[str] = field(default_factory=set)
    marked: set[str] = field(default_factory=set)

    def resume(self, host: EngineHost) -> None:
        """Hand over what was found, before anything else is given to the host."""
        host.stands(self.token, self.marked)
        host.resume("", None, self.needed.get("", {}))
        for name, fragment in self.fragments.items():
            spec = self.catalog.fragments.get(name)
            counts = spec is not None and spec.keeps_nothing
            host.resume(name, fragment, self.needed.get(name, {}), self.logs.get(name, ()), counts=counts)


def recover(
    store: Store,
    clock: Clock,
    *,
    node: str,
    warn: Callable[[str], None],
    journal: NodeJournal | None = None,
    rebuild: bool = False,
) -> StartupState:
    """Read and check everything, decide what stands and what is in doubt, then delete what nothing needs.

    Args:
        warn: told what is damaged or missing, and what is used instead.
        rebuild: the disk of this node was lost: it begins in doubt, until its peers have said what they know.

    Raises:
        StateError: the folder belongs to another node, all its catalogs are damaged, it isn't empty and is to
            be rebuilt, or it can't be read or written.
    """
    folder = NodeFolder(store, clock, node=node, warn=warn, journal=journal)
    found = folder.examine()
    if rebuild:
        folder.check_nothing_is_here(found)
    old = [each.number for each in folder.groups if each.kind == "life"]
    no_catalog = not found.token and not folder.fell_back
    first = min(old, default=0) if no_catalog else 0
    found.incarnation = _next_life(store, folder.groups, clock, warn, lost=rebuild and not old, first=first)
    if rebuild:
        folder.begin_rebuilding(found)
    elif no_catalog:
        # What no catalog was kept of, no earlier life with this folder has promised.
        found.catalog.begins(min([*old, found.incarnation]))
    folder.tidy(found)
    return found


class NodeFolder:
    """A node's data folder: ``examine`` only reads, ``tidy`` does what a start does then.

    Args:
        catalog_required: else every fragment on disk is in doubt where no catalog is whole.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        node: str,
        warn: Callable[[str], None],
        journal: NodeJournal | None = None,
        catalog_required: bool = True,
    ) -> None:
        self.groups = [GroupName.of(name) for name in store.names()]
        names = [each.name for each in self.groups]
        self.catalogs = read_catalogs(store, names, node, required=catalog_required)
        self.fell_back = False
        """The newest catalog was lost."""
        self._store = store
        self._clock = clock
        self._warn = warn
        self._journal = journal
        self._witness = 0
        """The newest catalog that a checkpoint saw."""
        self._unused: list[Unused] = []
        self._unnamed: dict[str, tuple[Spec, str, int] | str] = {}
        """Owners of groups that no catalog names -> what these are of, or why that can't be read."""

    # --- read and decide --------------------------------------------------------------------------

    def examine(self) -> StartupState:
        """What stands, and what is in doubt. Nothing is written or deleted."""
        catalog, owners = self.catalogs.catalog, self._owners()
        tokens = [each.number for each in self.groups if each.kind not in ("life", "unknown")]
        tokens += self._journal.numbers() if self._journal is not None else ()
        found = StartupState(
            first_token=max(tokens, default=0) + 1,
            catalog=catalog,
            token=self.catalogs.token,
            begun={each.owner for each in self.groups if each.kind in BEGUN_KINDS},
            marked={each.owner for each in self.groups if each.kind == "first checkpoint mark"},
        )
        for why in self.catalogs.damaged.values():
            self._warn(f"{why}; {_instead(self.catalogs)}")
        if found.token:
            found.needed[""] = {found.token: ()}
        known = {**catalog.fragments, **{n: each.spec for n, each in catalog.in_doubt.fragments.items()}}
        for spec in known.values():
            self._restore(found, spec)
        unnamed = {o: groups for o, groups in owners.items() if o not in {owner_of(name) for name in known}}
        self._unnamed = {owner: self._describe(groups) for owner, groups in unnamed.items()}
        self.fell_back = self._is_older()
        if self.fell_back:
            self._doubt_all(found)
        else:
            for name in list(catalog.fragments):
                if name not in found.saved and owner_of(name) in found.begun:
                    # Begun anew it would number other rows as those that readers have, and take rows for new
                    # that a publisher has had acknowledged.
                    guarded = others_have(catalog, name)
                    lost_state(catalog, name)
                    waits = "those that stand by" if guarded else "an operator"
                    self._warn(f"fragment {name}: no checkpoint of it is whole, so it waits for {waits}")
                elif self._lacks_newest(found, name) and others_have(catalog, name):
                    # Senders have been told of the newest: those that stand by have the rows, and we don't.
                    older_state(catalog, name)
                    self._warn(
                        f"fragment {name}: its newest checkpoint is lost: it waits for those that stand by"
                    )
        if self._journal is not None:
            self._find_decisions(self._journal, found)
        return found

    def _lacks_newest(self, found: StartupState, name: str) -> bool:
        """Whether a newer checkpoint than the one that is used was durable, or may have been: a node keeps
        two, once there were two."""
        if name not in found.saved:
            return False
        used, owner = found.saved[name].record, owner_of(name)
        if used is None:
            return False
        mine = [each for each in self.groups if each.owner == owner]
        numbers = [each.number for each in mine if each.kind == "checkpoint"]
        marks = [each.number for each in mine if each.kind == "first checkpoint mark"]
        return max(numbers) > used.token or (
            len(numbers) == 1 and max(marks, default=used.token) < used.token
        )

    def _owners(self) -> dict[str, list[GroupName]]:
        owners: dict[str, list[GroupName]] = {}
        for each in self.groups:
            if each.kind in FRAGMENT_KINDS:
                owners.setdefault(each.owner, []).append(each)
        return owners

    def _restore(self, found: StartupState, spec: Spec) -> None:
        """The newest whole checkpoint of a fragment, or nothing."""
        names = [each.name for each in self.groups if each.owner == owner_of(spec.name)]
        newest = newest_checkpoint(self._store, names, spec, self._clock, self._warn)
        if newest is None:
            found.fragments[spec.name] = Fragment(spec.graph, clock=self._clock)
            return
        self._witness = max(self._witness, newest.catalog)
        record = newest.record
        found.fragments[spec.name] = newest.fragment
        found.saved[spec.name] = SavedCheckpoint(record=record, logs=newest.logs)
        found.needed[spec.name] = {record.token: (*record.tokens(), *newest.stands_on)}

    def _describe(self, groups: Collection[GroupName]) -> tuple[Spec, str, int] | str:
        """Of groups that no catalog names: the fragment, its coordinator and epoch; or why not."""
        try:
            spec, record, catalog = fragment_of(self._store, groups)
        except StateError as error:
            return str(error)
        self._witness = max(self._witness, catalog)
        return spec, record.coordinator, record.epoch

    def _is_older(self) -> bool:
        """Whether a newer catalog than the one that is used was durable.

        A number of which one copy alone lies there, damaged, never was: its writer died before the other.
        Versions that wrote one copy only are told by the number that is used.
        """
        catalogs = self.catalogs
        if not catalogs.token and catalogs.newest:
            return True
        if self._witness > catalogs.token:
            return True
        if catalogs.newest <= catalogs.token:
            return False
        names = [each.name for each in self.groups if each.kind == "catalog"]
        newer = Counter(number for name in names if (number := GroupName.of(name).number) > catalogs.token)
        doubled = any(name == catalog_names(GroupName.of(name).number)[1] for name in names)
        return not doubled or any(copies > 1 for copies in newer.values())

    def unnamed(self, found: StartupState) -> dict[str, FragmentInDoubt]:
        """Fragments on disk that the catalog doesn't name and that aren't in doubt: ``tidy`` deletes them."""
        if self.fell_back:
            return {}
        left: dict[str, FragmentInDoubt] = {}
        for what in self._unnamed.values():
            if not isinstance(what, str):
                self._restore(found, what[0])
                each = self._in_doubt(found, *what)
                left[what[0].name] = msgspec.structs.replace(each, why="the catalog doesn't name it")
        return left

    def _doubt_all(self, found: StartupState) -> None:
        """Every fragment, named by the older catalog or found on disk, waits."""
        old, newest = found.catalog, max(self.catalogs.newest, self._witness)
        in_doubt: dict[str, FragmentInDoubt] = dict(old.in_doubt.fragments)
        unreadable: dict[str, str] = {}
        for name, spec in old.fragments.items():
            owner, epoch = old.owners.get(spec.query, old.node), old.ownership.epoch(name)
            in_doubt[name] = self._in_doubt(found, spec, owner, epoch)
        for hashed, what in self._unnamed.items():
            if isinstance(what, str):
                unreadable[hashed] = what
                self._warn(f"groups {hashed}-*, which no catalog names, are kept: {what}")
                continue
            spec, owner, epoch = what
            self._restore(found, spec)
            in_doubt[spec.name] = self._in_doubt(found, spec, owner, epoch)
        found.catalog = begin_doubt(
            old, newest=newest, data=bytes(self.catalogs.data), fragments=in_doubt, unreadable=unreadable
        )
        waiting = ", ".join(in_doubt) or "every name that is unknown here"
        token = self.catalogs.token
        older = f"number {token} is the newest whole one: what changed in between isn't known"
        self._warn(
            f"catalog number {newest} is lost, {older if token else 'and none before it is whole'}. "
            "Nothing is deleted. Until peers know more, or an operator "
            f"puts back a copy of the folder or decides with medusa repair, this waits: {waiting}"
        )

    def _in_doubt(self, found: StartupState, spec: Spec, coordinator: str, epoch: int) -> FragmentInDoubt:
        saved = found.saved.get(spec.name)
        record = saved.record if saved is not None else None
        if record is not None and record.spec and record.token > self.catalogs.token:
            try:
                spec = fragment_from(record.spec)
            except QueryError as error:
                self._warn(f"fragment {spec.name}: its checkpoint doesn't say what it is: {error}")
            else:
                coordinator, epoch = record.coordinator or coordinator, max(epoch, record.epoch)
        begun = owner_of(spec.name) in found.begun
        return FragmentInDoubt(
            spec=spec,
            coordinator=coordinator,
            epoch=epoch,
            state="checkpoint" if record is not None else "lost" if begun else "none",
            why="the catalog that said whether it is here is lost",
        )

    def _find_decisions(self, journal: NodeJournal, found: StartupState) -> None:
        in_doubt = found.catalog.in_doubt
        specs = {**found.catalog.fragments, **{name: each.spec for name, each in in_doubt.fragments.items()}}
        records = {name: saved.record for name, saved in found.saved.items()}
        decided = {name: record.decided if (record := records.get(name)) else 0 for name in specs}
        unknown_stay = bool(in_doubt.newest or in_doubt.unreadable)
        read = find_decisions(journal, specs, decided, self._warn, unknown_stay=unknown_stay)
        found.logs, self._unused = read.logs, read.unused
        for name, decisions in read.decisions.items():
            if decisions:
                saved = found.saved.get(name, SavedCheckpoint(record=None, logs={}))
                found.saved[name] = replace(saved, decisions=decisions)
        if in_doubt.newest:
            return
        catalog = found.catalog
        for name in [name for name in catalog.fragments if name in read.lost or "" in read.lost]:
            if others_have(catalog, name):
                older_state(catalog, name, checkpoint=name in found.saved)
                self._warn(f"fragment {name}: decisions of it are lost: it waits for those that stand by")

    # --- begin with what peers know ---------------------------------------------------------------

    def check_nothing_is_here(self, found: StartupState) -> None:
        """Whether a node can be rebuilt here.

        Raises:
            StateError: the folder has something that would be lost.
        """
        if found.catalog.birth.forgot or not (found.token or self.fell_back or self._owners()):
            return
        has = ", ".join(found.catalog.fragments) or "its catalog"
        raise StateError(
            f"{self._store.where('')} isn't empty, so nothing is rebuilt: it has {has}",
            hint="start the node without --rebuild; medusa repair says what is damaged. If the disk was lost "
            "and this is none of it, move the folder away first",
            code="state.rebuild",
        )

    def begin_rebuilding(self, found: StartupState) -> None:
        """The catalog of a node that asks its peers; on disk before anybody hears of the node."""
        catalog = found.catalog
        catalog.begins_anew(found.incarnation)
        # Attempts are numbered by tokens too: those of the lost disk aren't known.
        found.first_token = max(found.first_token, found.incarnation)
        self._write_anew(found, catalog.to_bytes())

    # --- delete -----------------------------------------------------------------------------------

    def tidy(self, found: StartupState) -> None:
        """Delete what the newest catalog says that nothing needs, and write its missing copy.

        Raises:
            StateError: a decision log can't be synced, cut or removed.
        """
        if self._journal is not None:
            for each in self._unused:
                if each.aside:
                    self._warn(f"a copy is kept as {self._journal.set_aside(each.number)}")
                if each.stays:
                    self._journal.cut(each.number, each.stays)
                else:
                    self._journal.remove(each.number)
            for numbers in found.logs.values():
                for number in numbers:
                    self._journal.sync(number)
        if self.fell_back:
            return
        named = {*found.catalog.fragments, *found.catalog.in_doubt.fragments}
        owners = {*map(owner_of, named), *found.catalog.in_doubt.unreadable}
        gone = [each.name for each in self.groups if each.kind in FRAGMENT_KINDS and each.owner not in owners]
        try:
            if self.catalogs.token and self.catalogs.missing:
                self._write_missing(found)
            for name in gone:
                self._store.delete(name)
        except StateError as error:  # What couldn't be done is at the next start.
            self._warn(str(error))

    def _write_missing(self, found: StartupState) -> None:
        missing, files = self.catalogs.missing, {CATALOG: self.catalogs.data}
        if len(missing) == 1:
            self._store.delete(missing[0])
            self._store.write(missing[0], seal(files, {"fragment": "", "token": found.token}))
        else:  # Neither copy is whole by itself, so both stay until another number is there.
            self._write_anew(found, self.catalogs.data)

    def _write_anew(self, found: StartupState, data: Buffer) -> None:
        """A catalog of another number, in both copies."""
        write_catalog(self._store, found.first_token, {CATALOG: data})
        found.token = found.first_token
        found.needed[""] = {found.token: ()}
        found.first_token += 1


def _instead(catalogs: FoundCatalog) -> str:
    if catalogs.token == catalogs.newest:
        return f"the other copy of number {catalogs.token} is whole and used"
    return f"number {catalogs.token} is used"


def _next_life(
    store: Store,
    groups: Sequence[GroupName],
    clock: Clock,
    warn: Callable[[str], None],
    *,
    lost: bool = False,
    first: int = 0,
) -> int:
    """A number larger than that of any life before, also where the folder was lost in between.

    Peers ignore a node that comes back with a smaller number, and take one with the same number for one that
    hasn't been away, so it is kept in two groups.

    Args:
        lost: the number of the last life was lost with the folder.
        first: the first life with this folder, where no catalog says it yet: it is kept; 0: none is.

    Raises:
        StateError: it couldn't be written.
    """
    old = [each for each in groups if each.kind == "life"]
    life = max([each.number + 1 for each in old] + [clock.now_us() // 1_000_000])
    if lost:
        life += UNKNOWN_LIVES
    elif groups and not old:
        life += UNKNOWN_LIVES
        warn(f"the number of this node's last life is lost, so it goes on with {life}")
    for name in life_names(life):
        store.write(name, {})
    for each in old:
        if each.number != first:
            store.delete(each.name)
    return life
