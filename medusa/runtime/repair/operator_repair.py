"""``medusa repair``: what the folder of a stopped node holds, and what an operator decides about it.

Looking writes nothing. Decisions are one new number of the catalog, durable in both copies before they are
answered; the node acts on them at its next start (``nodes.repair.resolution``).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace

from medusa.errors import ConfigError, StateError
from medusa.nodes.catalog.catalog import CATALOG
from medusa.nodes.catalog.in_doubt import FragmentInDoubt
from medusa.nodes.config.settings import Settings
from medusa.nodes.fragment.checkpoint_record import FragmentRecord
from medusa.nodes.fragment.input_log_records import unpack
from medusa.nodes.repair.operator_decisions import OperatorDecisions, decided
from medusa.ports import NodeJournal, NodeStore
from medusa.runtime.engine_host.group_names import group_name, owner_of
from medusa.runtime.engine_host.node_groups import write_catalog
from medusa.runtime.machine.clock import SystemClock
from medusa.runtime.repair.startup import NodeFolder, StartupState
from medusa.runtime.store.node_store import open_store

__all__ = ["FragmentFound", "FolderFound", "look", "repair"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FragmentFound:
    """A fragment of which nobody here knows whether it is this node's.

    Attributes:
        coordinator: the node that deployed its query.
        epoch: the last one in which it was surely this node's; 0: none is known.
        state: ``checkpoint``, ``lost`` or ``none``, as in ``nodes.catalog.in_doubt``.
        why: it is in doubt.
        decision: ``adopt``, ``forget``, or empty.
        named: False: the catalog is whole and doesn't name it, so it goes at the next start unless it is
            taken up.
        checkpoint: the number of its newest whole one; 0: there is none.
        age_s: since that was written.
        inputs: (source, sender, the next row wanted), by that checkpoint.
        outputs: (sink, the first row kept, the row after the last), by that checkpoint.
        decisions: entries of its decision log that follow the checkpoint.
        groups: of files that are its own.
    """

    name: str
    query: str
    coordinator: str
    epoch: int
    state: str
    why: str
    decision: str
    named: bool
    checkpoint: int
    age_s: float
    inputs: tuple[tuple[str, str, int], ...]
    outputs: tuple[tuple[str, int, int], ...]
    decisions: int
    groups: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderFound:
    """What the folder of a node holds.

    Attributes:
        catalog: the number of the newest whole one; 0: none is whole.
        lost_catalog: the number of a newer one that was lost; 0: the catalog is known.
        accepted: an operator has accepted that; it counts from the next start.
        running: fragments that the catalog names and that are not in doubt.
        fragments: those in doubt, and those that the catalog doesn't name.
        unreadable: hash in the names of groups of nobody knows which fragment -> why.
        said: of damaged and missing files, as a start would log it.
        aside: folders to which this call copied something.
    """

    node: str
    folder: str
    catalog: int
    lost_catalog: int
    accepted: bool
    running: tuple[str, ...]
    fragments: tuple[FragmentFound, ...]
    unreadable: dict[str, str]
    said: tuple[str, ...]
    aside: tuple[str, ...] = ()


def look(settings: Settings) -> FolderFound:
    """What lies in the data folder of a node that isn't running. Nothing there is changed.

    Raises:
        ConfigError: the node keeps nothing on disk.
        StateError: it is running (``state.locked``), the folder belongs to another node, or can't be read.
    """
    with _opened(settings) as opened:
        return opened.described()


def repair(
    settings: Settings, decisions: OperatorDecisions, *, set_aside: tuple[str, ...] = ()
) -> FolderFound:
    """Decide about what is in doubt, durably: all of it, or nothing.

    What is set aside, and what is left of a fragment that is begun anew, is copied first into a folder
    ``HASH-N.aside`` within the data folder.

    Args:
        set_aside: fragments, or hashes of unreadable groups, that aren't here any more.

    Returns:
        the folder as it is now.

    Raises:
        ConfigError, StateError: as ``look``; or a decision can't be (``state.repair``) or be written.
    """
    whole = replace(decisions, delete=(*decisions.delete, *set_aside))
    with _opened(settings) as opened:
        catalog = opened.found.catalog
        in_doubt = decided(catalog, whole, opened.unnamed)
        unreadable = catalog.in_doubt.unreadable
        aside = [
            opened.copy_aside(each if each in unreadable else owner_of(each))
            for each in (*set_aside, *decisions.begin_anew)
        ]
        catalog.in_doubt = in_doubt
        write_catalog(opened.store.groups, opened.found.first_token, {CATALOG: catalog.to_bytes()})
    return replace(look(settings), aside=tuple(aside))


@dataclass(slots=True, kw_only=True)
class _Opened:
    settings: Settings
    store: NodeStore
    folder: NodeFolder
    found: StartupState
    unnamed: dict[str, FragmentInDoubt]
    said: list[str]

    def described(self) -> FolderFound:
        catalog = self.found.catalog
        fragments = [self._fragment(each, named=True) for each in catalog.in_doubt.fragments.values()]
        fragments += [self._fragment(each, named=False) for each in self.unnamed.values()]
        return FolderFound(
            node=self.settings.name,
            folder=self.settings.data,
            catalog=self.found.token,
            lost_catalog=catalog.in_doubt.newest,
            accepted=catalog.in_doubt.accepted,
            running=tuple(catalog.fragments),
            fragments=tuple(fragments),
            unreadable=dict(catalog.in_doubt.unreadable),
            said=tuple(self.said),
        )

    def _fragment(self, each: FragmentInDoubt, *, named: bool) -> FragmentFound:
        name = each.spec.name
        saved = self.found.saved.get(name)
        record = saved.record if saved is not None else None
        return FragmentFound(
            name=name,
            query=each.spec.query,
            coordinator=each.coordinator,
            epoch=each.epoch,
            state=each.state,
            why=each.why,
            decision=each.decision,
            named=named,
            checkpoint=record.token if record is not None else 0,
            age_s=self._age_s(record),
            inputs=tuple((i.source, i.peer, i.next_seq) for i in record.inputs) if record else (),
            outputs=tuple(
                (o.sink, o.first_seq, o.entries[-1].end if o.entries else o.first_seq) for o in record.outputs
            )
            if record
            else (),
            decisions=len(saved.decisions) if saved is not None else 0,
            groups=len(self._groups(owner_of(name))),
        )

    def _age_s(self, record: FragmentRecord | None) -> float:
        if record is None:
            return 0.0
        return self.store.age_s(group_name(record.fragment, record.token))

    def _groups(self, owner: str) -> list[str]:
        return [each.name for each in self.folder.groups if each.owner == owner]

    def copy_aside(self, owner: str) -> str:
        """Copy all files of a fragment durably, decision logs too; where to.

        Raises:
            StateError: one can't be read or written.
        """
        groups, journal = self.store.groups, self.store.journal
        with contextlib.closing(self.store.beside(owner)) as copy:
            for name in self._groups(owner):
                copy.groups.write(name, groups.read(name))
            if journal is not None and copy.journal is not None:
                _copy_logs(journal, copy.journal, owner)
            return copy.groups.where("")


def _copy_logs(source: NodeJournal, target: NodeJournal, owner: str) -> None:
    for number in source.numbers():
        data = source.read(number)
        records, _ = unpack(data)
        if records and owner_of(records[0].fragment) == owner:
            target.append(number, data)
            target.sync(number)


@contextlib.contextmanager
def _opened(settings: Settings) -> Iterator[_Opened]:
    """What the node left, locked, and examined as at a start."""
    if settings.forgets:
        raise ConfigError(
            f'node {settings.name!r} has store = "{settings.store}": it keeps nothing that could be repaired',
            code="config.store",
        )
    clock = SystemClock()
    with contextlib.ExitStack() as stack:
        try:
            store = open_store(settings, clock, existing=True)
        except StateError as error:
            if error.code != "state.locked":
                raise
            hint = "stop it first; medusa status --node ADDRESS --json says what it has in doubt"
            text = f"node {settings.name!r} is running: {error.message}"
            raise StateError(text, hint=hint, code="state.locked") from None
        stack.callback(store.close)
        said: list[str] = []
        folder = NodeFolder(
            store.groups,
            clock,
            node=settings.name,
            warn=said.append,
            journal=store.journal,
            catalog_required=False,
        )
        found = folder.examine()
        unnamed = folder.unnamed(found)
        yield _Opened(
            settings=settings,
            store=store,
            folder=folder,
            found=found,
            unnamed=unnamed,
            said=said,
        )
