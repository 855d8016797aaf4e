"""What a node's data folder holds: each group is read and checked, and nothing is written."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from medusa.engine.fragment import Fragment
from medusa.engine.state.checkpoint import MANIFEST, MANIFEST_SUM, unseal
from medusa.errors import QueryError, StateError
from medusa.nodes.catalog.catalog import CATALOG, Catalog
from medusa.nodes.fragment.checkpoint_record import LOG, RECORD, FragmentRecord, read_record
from medusa.nodes.spec.fragment_spec import FragmentSpec as Spec
from medusa.nodes.spec.fragment_spec import fragment_from
from medusa.ports import Buffer, Clock, Store
from medusa.runtime.engine_host.group_names import GroupName, catalog_names, group_name, group_token, owner_of
from medusa.runtime.store.checkpoint_copy import read_state

__all__ = [
    "FoundCatalog",
    "FoundCheckpoint",
    "fragment_of",
    "newest_checkpoint",
    "read_catalogs",
    "read_group",
    "whole_checkpoint",
]


def read_group(store: Store, name: str, fragment: str) -> tuple[dict[str, object], dict[str, Buffer]]:
    """What the manifest says and the files of a group, if it is the one that was written under this name.

    Raises:
        StateError: it is missing or damaged, or was written as another one.
    """
    facts, files = unseal(store.read(name), store.where(name))
    _check_owner(store, name, fragment, facts)
    return facts, files


def _check_owner(store: Store, name: str, fragment: str, facts: Mapping[str, object]) -> None:
    if (facts.get("fragment"), facts.get("token")) != (fragment, GroupName.of(name).number):
        raise StateError(
            f"{store.where(name)} was written as another one: {facts.get('fragment')!r:.80}, number "
            f"{facts.get('token')!r:.20}",
            hint="move it away, or put back the one that belongs here",
            code="state.owner",
        )


# --- the catalog ----------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class FoundCatalog:
    """The newest whole catalog.

    Attributes:
        token: its number; 0: there is none, and ``catalog`` is empty.
        newest: the largest number of a catalog that lies there, whole or not.
        data: as it is on disk.
        missing: of the two groups of this number, those that aren't there or are damaged.
        damaged: why, of each damaged group.
    """

    token: int
    newest: int
    catalog: Catalog
    data: Buffer = b""
    missing: tuple[str, ...] = ()
    damaged: dict[str, str] = field(default_factory=dict)


def read_catalogs(store: Store, names: Collection[str], node: str, *, required: bool = True) -> FoundCatalog:
    """The newest catalog that is whole in either copy, or in both taken together.

    Args:
        required: else one with ``token`` 0 and ``newest`` above it stands for a folder where none is whole.

    Raises:
        StateError: none is whole (``state.catalog``), or it belongs to another node (``state.node``).
    """
    tokens = sorted({token for name in names if (token := group_token("", name)) is not None}, reverse=True)
    damaged: dict[str, str] = {}
    for token in tokens:
        copies = [name for name in catalog_names(token) if name in names]
        found: Catalog | None = None
        whole: list[str] = []
        data: Buffer = b""
        for name, group in _groups(store, copies, damaged):
            try:
                catalog, read = _catalog(store, name, group, node)
            except StateError as error:
                if error.code == "state.node":
                    raise
                damaged[name] = str(error)
                continue
            if name in copies:
                whole.append(name)
                damaged.pop(name, None)
            if found is None:
                found, data = catalog, read
        if found is not None:
            missing = tuple(name for name in catalog_names(token) if name not in whole)
            return FoundCatalog(
                token=token, newest=tokens[0], catalog=found, data=data, missing=missing, damaged=damaged
            )
    if tokens and required:
        raise StateError(
            f"{store.where('')}: no catalog there is whole, so what ran here can't be known: "
            f"{next(iter(damaged.values()))}",
            hint="put back a copy of the folder; or see with medusa repair what is left of it",
            code="state.catalog",
        )
    return FoundCatalog(token=0, newest=max(tokens, default=0), catalog=Catalog(node), damaged=damaged)


def _groups(
    store: Store, copies: list[str], damaged: dict[str, str]
) -> Iterator[tuple[str, dict[str, Buffer]]]:
    """Each copy; where none of them is whole, the content of one with the sums of the other as well."""
    groups: dict[str, dict[str, Buffer]] = {}
    for name in copies:
        try:
            groups[name] = store.read(name)
        except StateError as error:
            damaged[name] = str(error)
            continue
        yield name, groups[name]
    if len(groups) == 2 and all(name in damaged for name in copies):
        one, other = groups.values()
        for content, sums in ((one, other), (other, one)):
            mixed = {file: data for file, data in sums.items() if file in (MANIFEST, MANIFEST_SUM)}
            if CATALOG in content:
                mixed[CATALOG] = content[CATALOG]
            yield f"{copies[0]}+{copies[1]}", mixed


def _catalog(store: Store, name: str, group: Mapping[str, Buffer], node: str) -> tuple[Catalog, Buffer]:
    facts, files = unseal(group, store.where(name))
    token = GroupName.of(name.partition("+")[0]).number
    if (facts.get("fragment"), facts.get("token")) != ("", token):
        text = f"{store.where(name)} was written as number {facts.get('token')!r:.20}"
        raise StateError(text, code="state.owner")
    data = files.get(CATALOG, b"")
    return Catalog.from_bytes(data, node=node, where=store.where(name, CATALOG)), data


# --- checkpoints ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundCheckpoint:
    """A whole checkpoint.

    Attributes:
        catalog: the number of the catalog that stood when it was written; 0: an earlier version wrote it.
        fragment: restored from it.
        logs: the output that it needs, by token.
        stands_on: tokens of the groups that its state is made of, its own last.
    """

    name: str
    catalog: int
    record: FragmentRecord
    fragment: Fragment
    logs: Mapping[int, Buffer]
    stands_on: tuple[int, ...]


def fragment_of(store: Store, groups: Iterable[GroupName]) -> tuple[Spec, FragmentRecord, int]:
    """Which fragment the newest readable checkpoint among these groups is of, by its own word; what else it
    says, and the number of the catalog that stood when it was written.

    Raises:
        StateError: none of them says so.
    """
    why = "there is no checkpoint"
    for group in sorted(groups, key=lambda each: -each.number):
        if group.kind != "checkpoint":
            continue
        try:
            facts, files = unseal(store.read(group.name), store.where(group.name))
            record = read_record(files.get(RECORD, b""), where=store.where(group.name, RECORD))
            if (owner_of(record.fragment), record.token) != (group.owner, group.number):
                raise StateError(f"{store.where(group.name)} was written as another one", code="state.owner")
            if not record.spec:
                raise StateError(
                    f"{store.where(group.name)} is of fragment {facts.get('fragment')!r:.80}; an older "
                    "version wrote it, which didn't say more",
                    code="state.version",
                )
            spec = fragment_from(record.spec)
            if spec.name != record.fragment:
                raise StateError(f"{store.where(group.name)} has the spec of another one", code="state.owner")
            return spec, record, _number(facts)
        except (StateError, QueryError) as error:
            why = str(error)
    raise StateError(why, code="state.corrupt")


def whole_checkpoint(store: Store, spec: Spec, name: str, clock: Clock) -> FoundCheckpoint:
    """Read one in full, with the output of others that it refers to.

    Raises:
        StateError: something of it is missing or damaged.
        QueryError: it doesn't fit the fragment.
    """
    facts, files, groups = read_state(store, name)
    _check_owner(store, name, spec.name, facts)
    record = read_record(files.pop(RECORD, b""), where=store.where(name, RECORD))
    own = files.pop(LOG, b"")
    logs: dict[int, Buffer] = {
        token: own if token == record.token else _log(store, spec.name, token)
        for token in record.tokens()
        if token not in record.segments()
    }
    return FoundCheckpoint(
        name=name,
        catalog=_number(facts),
        record=record,
        fragment=Fragment.restore(spec.graph, files, clock=clock),
        logs=logs,
        stands_on=tuple(GroupName.of(group).number for group in groups),
    )


def _number(facts: Mapping[str, object]) -> int:
    catalog = facts.get("catalog", 0)
    return catalog if type(catalog) is int else 0


def _log(store: Store, fragment: str, token: int) -> Buffer:
    return read_group(store, group_name(fragment, token), fragment)[1].get(LOG, b"")


def newest_checkpoint(
    store: Store, names: Iterable[str], spec: Spec, clock: Clock, warn: Callable[[str], None]
) -> FoundCheckpoint | None:
    """The newest that is whole; of each newer one ``warn`` hears why it isn't. None: none is whole."""
    tokens = {token: name for name in names if (token := group_token(spec.name, name)) is not None}
    left = sorted(tokens)
    while left:
        try:
            return whole_checkpoint(store, spec, tokens[left.pop()], clock)
        except (StateError, QueryError) as error:
            then = "trying the one before" if left else "there is none before it"
            warn(f"fragment {spec.name}: {error}; {then}")
    return None
