"""A checkpoint as it is sent to another node: every byte checked, large files read where they are touched."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from medusa.engine.state.checkpoint import read_chain, read_links, unseal
from medusa.engine.state.delta import DeltaFiles, together
from medusa.errors import StateError
from medusa.nodes.fragment.checkpoint_record import LOG, RECORD, read_record
from medusa.ports import Buffer, Store

__all__ = ["CheckpointCopy", "read_copy", "read_state"]


@dataclass(frozen=True, slots=True)
class CheckpointCopy:
    """What was read of a checkpoint.

    Attributes:
        files: all of it; with ``base`` all but the files of its state.
        sum: the CRC-32C of its manifest, in hex.
        base: the checkpoint that ``deltas`` stand on; 0: ``files`` has the state.
        deltas: the oldest first; the last one is of the checkpoint itself.
    """

    files: dict[str, Buffer]
    sum: str
    base: int
    deltas: tuple[DeltaFiles, ...]


def read_state(store: Store, name: str) -> tuple[dict[str, object], dict[str, Buffer], tuple[str, ...]]:
    """The manifest and the files of a checkpoint, those of a delta put together with what it stands on.

    Returns:
        Also the groups that it is made of, the first of them whole.

    Raises:
        StateError: one of them isn't there, is damaged, or isn't the one that was meant.
    """
    return read_chain(name, store.read, store.where)


def read_copy(
    store: Store,
    fragment: str,
    token: int,
    name_of: Callable[[int, bool], str],
    *,
    base: int = 0,
    base_sum: str = "",
) -> CheckpointCopy:
    """The files of a checkpoint, and as ``log-TOKEN`` the output of others that it refers to.

    Args:
        name_of: token, and whether it is of a segment -> the group.
        base: a checkpoint that its reader has already; 0: none. Where this one stands on it, only what was
            written after it is read.
        base_sum: the CRC-32C of that one's manifest, in hex.

    Raises:
        StateError: something isn't there, can't be read, or is damaged.
    """

    def check(number: int, name: str, facts: Mapping[str, object]) -> None:
        if (facts.get("fragment"), facts.get("token")) != (fragment, number):
            raise StateError(f"{store.where(name)} was written as another one", code="state.owner")

    def read(number: int, segment: bool) -> Mapping[str, Buffer]:
        name = name_of(number, segment)
        facts, files = unseal(store.read(name), store.where(name))
        check(number, name, facts)
        return files

    name = name_of(token, False)
    since = (name_of(base, False), base_sum) if base else None
    links, sum = read_links(name, store.read, store.where, since=since)
    _, facts, own = links[-1]
    check(token, name, facts)
    found: list[DeltaFiles] = []
    before = base
    for _, each, own in links:
        if "delta" in each:
            found.append(DeltaFiles(each["token"], before, each["delta"], _state(own)))
        before = each["token"]
    stands = len(found) == len(links)
    state = {} if stands else together(_state(links[0][2]), found, store.where(name))
    files = {**state, **{each: own[each] for each in (RECORD, LOG) if each in own}}
    record = read_record(files.get(RECORD, b""), where=store.where(name, RECORD))
    for other in record.tokens():
        if other != token:
            files[f"{LOG}-{other}"] = read(other, other in record.segments()).get(LOG, b"")
    return CheckpointCopy(files, sum, base if stands else 0, tuple(found) if stands else ())


def _state(files: Mapping[str, Buffer]) -> dict[str, Buffer]:
    return {name: data for name, data in files.items() if name not in (RECORD, LOG)}
