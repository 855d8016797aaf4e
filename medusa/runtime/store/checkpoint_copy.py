"""A checkpoint as it is sent to another node: every byte checked, large files read where they are touched."""

from __future__ import annotations

from collections.abc import Callable

from medusa.engine.state.checkpoint import read_chain, unseal
from medusa.errors import StateError
from medusa.nodes.fragment.checkpoint_record import LOG, RECORD, read_record
from medusa.ports import Buffer, Store

__all__ = ["read_copy", "read_state"]


def read_state(store: Store, name: str) -> tuple[dict[str, object], dict[str, Buffer], tuple[str, ...]]:
    """The manifest and the files of a checkpoint, those of a delta put together with what it stands on.

    Returns:
        Also the groups that it is made of, the first of them whole.

    Raises:
        StateError: one of them isn't there, is damaged, or isn't the one that was meant.
    """
    return read_chain(name, store.read, store.where)


def read_copy(
    store: Store, fragment: str, token: int, name_of: Callable[[int, bool], str]
) -> dict[str, Buffer]:
    """The files of a checkpoint, and as ``log-TOKEN`` the output of others that it refers to.

    Args:
        name_of: token, and whether it is of a segment -> the group.

    Raises:
        StateError: something isn't there, can't be read, or is damaged.
    """

    def read(number: int, segment: bool, state: bool = False) -> dict[str, Buffer]:
        name = name_of(number, segment)
        facts, files = read_state(store, name)[:2] if state else unseal(store.read(name), store.where(name))
        if (facts.get("fragment"), facts.get("token")) != (fragment, number):
            raise StateError(f"{store.where(name)} was written as another one", code="state.owner")
        return files

    files = read(token, False, state=True)
    record = read_record(files.get(RECORD, b""), where=store.where(name_of(token, False), RECORD))
    for other in record.tokens():
        if other != token:
            files[f"{LOG}-{other}"] = read(other, other in record.segments()).get(LOG, b"")
    return files
