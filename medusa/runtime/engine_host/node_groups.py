"""What a node writes into its data folder, and which groups a newer one replaces.

A catalog is written twice: its newest number decides what runs, so one damaged file must not take that
away. An older number goes only once both copies of the newer are durable. A checkpoint says which catalog
stood when it was written, and the first one of a fragment leaves a mark: what is missing later can be told.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from medusa.engine.state.checkpoint import MANIFEST_SUM, VERSION, seal
from medusa.errors import StateError
from medusa.ports import Content, Store, pieces_of
from medusa.runtime.engine_host.group_names import GroupName, begun_name, catalog_names, group_name, owner_of

__all__ = ["NodeGroups", "write_catalog"]


class NodeGroups:
    """The groups of one node in its store. One thread at a time uses it; older catalogs may be deleted in
    another.

    Args:
        catalog: the number of the catalog that stands; 0: none.
        marked: owners (``group_names.owner_of``) whose fragments have the mark of their first checkpoint.
    """

    def __init__(self, store: Store, *, catalog: int = 0, marked: Iterable[str] = ()) -> None:
        self._store = store
        self._catalog = catalog
        self._marked = set(marked)

    def write(
        self, fragment: str, token: int, files: Mapping[str, Content], more: Mapping[str, Any] | None = None
    ) -> bytes:
        """Store a checkpoint durably, or the catalog (empty ``fragment``) in both its copies.

        Args:
            more: facts for the manifest: ``delta``, where its state stands on an earlier one.

        Returns:
            The sum of its manifest, as it is written; of the catalog nothing.

        Raises:
            StateError: it couldn't be written; a catalog of which only one copy could is removed again.
        """
        if not fragment:
            write_catalog(self._store, token, files)
            self._catalog = token
            return b""
        facts = {"fragment": fragment, "token": token, "catalog": self._catalog, **(more or {})}
        if "delta" in facts:
            facts["version"] = VERSION
        group = seal(files, facts)
        self._store.write(group_name(fragment, token), group)
        self._mark(fragment, token)
        return b"".join(pieces_of(group[MANIFEST_SUM]))

    def _mark(self, fragment: str, token: int) -> None:
        """After the first checkpoint, and before anybody is told of it: without the mark its loss would look
        like a fragment just deployed. With a mark and no checkpoint yet the fragment would wait in doubt."""
        owner = owner_of(fragment)
        if owner not in self._marked:
            facts = {"fragment": fragment, "token": token}
            self._store.write(begun_name(fragment, token), seal({}, facts))
            self._marked.add(owner)

    def sweep(self, fragment: str, kept: Collection[int], before: int | None = None) -> None:
        """Delete the groups of a fragment, or the catalogs, that nothing refers to. One that can't be deleted
        does no harm.

        Args:
            kept: tokens that stay.
            before: what was written later stays too: the next checkpoint may refer to it. None: all goes that
                isn't in ``kept``, and the mark of the first checkpoint.
        """
        owner = owner_of(fragment) if fragment else ""
        kinds = ("checkpoint", "output segment") if fragment else ("catalog",)
        if before is None:
            kinds = (*kinds, "first checkpoint mark")
            self._marked.discard(owner)
        try:
            names = self._store.names()
        except StateError:
            return
        groups = [GroupName.of(name) for name in names]
        # The mark first: if we die in between, what is left isn't taken for a fragment that lost its state.
        for group in sorted(groups, key=lambda group: group.kind != "first checkpoint mark"):
            mine = group.kind in kinds and group.owner == owner
            if mine and group.number not in kept and (before is None or group.number < before):
                with contextlib.suppress(StateError):
                    self._store.delete(group.name)


def write_catalog(store: Store, token: int, files: Mapping[str, Content]) -> None:
    """Store a catalog durably in two groups.

    Raises:
        StateError: one couldn't be written; then neither counts.
    """
    sealed = seal(files, {"fragment": "", "token": token})
    store.write_all(dict.fromkeys(catalog_names(token), sealed))
