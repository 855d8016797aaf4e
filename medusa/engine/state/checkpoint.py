"""Checkpoints: groups of files with a manifest that says what every byte of them must be.

A group holds the files of a fragment (``medusa.engine.state.fragment_state``), ``manifest.json`` with the
length and CRC-32C of each, and ``manifest.crc32c`` with that of the manifest. The store makes a group
appear whole or not at all; the sums find what goes wrong later. A group may be a delta on an earlier
one (``medusa.engine.state.delta``), which its manifest names together with the sum of that one's manifest.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self, TypeVar

from medusa._native import crc32c
from medusa.engine.state.capture import Capture, Known, next_number
from medusa.engine.state.delta import Part, Patched, Tables, as_files, cut, is_plan, patched, size_of
from medusa.engine.state.newer_checkpoints import (
    NewerCheckpoint,
    ahead_from_json,
    ahead_to_json,
    positions_of,
)
from medusa.engine.state.readable_json import json_text, readable
from medusa.errors import StateError
from medusa.ports import Buffer, Content, Store, pieces_of

__all__ = [
    "DELTAS_MAX",
    "FULL_BYTES_MIN",
    "KEPT",
    "MANIFEST",
    "MANIFEST_SUM",
    "VERSION",
    "DeltaChain",
    "Checkpoints",
    "crc32c",
    "read_chain",
    "read_links",
    "seal",
    "unseal",
]

T = TypeVar("T", bound=Content)

KEPT = 2
"""Checkpoints kept: the last, and the one before in case the last is damaged."""

DELTAS_MAX = 16
"""Deltas after which a whole checkpoint is written again."""

FULL_BYTES_MIN = 1 << 16
"""State up to which every checkpoint is whole: a delta would save nothing."""

MANIFEST = "manifest.json"
MANIFEST_SUM = "manifest.crc32c"
FORMAT = "medusa-checkpoint"
VERSION = 3
"""A reader takes this one and those before: 1 had no deltas, and 2 none of nodes."""
WRITTEN = 2
"""What is written where nothing is newer, so that versions before this one read it."""

_NAME = re.compile(r"checkpoint-(\d{9,18})")
_BASE = re.compile(rf"{_NAME.pattern}|[0-9a-f]{{24}}-\d{{12}}")
"""A checkpoint that another may be a delta on: of a program, or of a node."""


def seal(files: Mapping[str, T], facts: Mapping[str, Any]) -> dict[str, T | bytes]:
    """The files with their manifest.

    Args:
        facts: JSON values that go into the manifest besides.
    """
    listed = {name: _listed(data) for name, data in files.items()}
    manifest = {"format": FORMAT, "version": WRITTEN, **facts, "files": listed}
    text = readable(json_text(manifest))
    return {**files, MANIFEST: text, MANIFEST_SUM: f"{crc32c(text):08x}\n".encode()}


def _listed(data: Content) -> dict[str, Any]:
    size = value = 0
    for piece in pieces_of(data):
        size += len(memoryview(piece).cast("B"))
        value = crc32c(piece, value)
    return {"bytes": size, "crc32c": f"{value:08x}"}


def unseal(
    group: Mapping[str, Buffer], where: str = "checkpoint"
) -> tuple[dict[str, Any], dict[str, Buffer]]:
    """The manifest and the files that it lists, every byte checked.

    Args:
        where: the group as a person would look for it, for messages.

    Raises:
        StateError: names the file that is missing, too many, or damaged.
    """
    manifest = _manifest(group, where)
    files: dict[str, Buffer] = {}
    for name, entry in manifest["files"].items():
        if name not in group:
            raise StateError(f"{where}/{name} is missing", code="state.missing")
        data = group[name]
        size = len(memoryview(data).cast("B"))
        if size != entry["bytes"]:
            raise StateError(
                f"{where}/{name} is damaged: it has {size} bytes, not {entry['bytes']}", code="state.corrupt"
            )
        if f"{crc32c(data):08x}" != entry["crc32c"]:
            raise StateError(f"{where}/{name} is damaged: its checksum is wrong", code="state.corrupt")
        files[name] = data
    for name in group:
        if name not in files and name not in (MANIFEST, MANIFEST_SUM):
            raise StateError(f"{where}/{name} doesn't belong there", code="state.corrupt")
    return manifest, files


def _manifest(group: Mapping[str, Buffer], where: str) -> dict[str, Any]:
    for name in (MANIFEST, MANIFEST_SUM):
        if name not in group:
            raise StateError(f"{where}/{name} is missing", code="state.missing")
    text = bytes(group[MANIFEST])
    if bytes(group[MANIFEST_SUM]) != f"{crc32c(text):08x}\n".encode():
        raise StateError(f"{where}/{MANIFEST} is damaged: its checksum is wrong", code="state.corrupt")
    return _parse(text, where)


def _parse(text: bytes, where: str) -> dict[str, Any]:
    try:
        manifest = json.loads(text)
        if manifest["format"] != FORMAT:
            raise ValueError
        version = manifest["version"]
        listed = all(
            isinstance(entry["bytes"], int) and isinstance(entry["crc32c"], str)
            for entry in manifest["files"].values()
        )
        delta = manifest.get("delta")
        if delta is not None and not (
            _BASE.fullmatch(delta["base"]) and isinstance(delta["base_crc32c"], str) and is_plan(delta)
        ):
            raise ValueError
        if type(version) is not int or version < 1 or (not listed and version <= VERSION):
            raise ValueError
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise StateError(
            f"{where}/{MANIFEST}: not the manifest of a checkpoint", code="state.corrupt"
        ) from None
    if version > VERSION:
        raise StateError(
            f"{where}/{MANIFEST}: has version {version}, this program reads up to {VERSION}",
            hint="a newer Medusa wrote it",
            code="state.version",
        )
    return manifest  # type: ignore[no-any-return]


Link = tuple[str, dict[str, Any], dict[str, Buffer]]
"""A group of a chain: its name, its manifest, its files."""


def read_chain(
    name: str, read: Callable[[str], Mapping[str, Buffer]], where: Callable[[str], str]
) -> tuple[dict[str, Any], dict[str, Buffer], tuple[str, ...]]:
    """A checkpoint and those that it is a delta on.

    Args:
        read: the files of a group.
        where: a group as a person would look for it.

    Returns:
        Its manifest, its files as if it had been written whole, and the names of all groups it is made
        of, the first of them whole.

    Raises:
        StateError: one of them is missing or damaged, or isn't the one that was meant.
    """
    links, _ = read_links(name, read, where)
    parts: dict[str, Part | Patched] = dict(links[0][2])
    for link, manifest, files in links[1:]:
        parts = patched(parts, manifest["delta"], files, where(link))
    return links[-1][1], as_files(parts), tuple(link for link, _, _ in links)


def read_links(
    name: str,
    read: Callable[[str], Mapping[str, Buffer]],
    where: Callable[[str], str],
    *,
    since: tuple[str, str] | None = None,
) -> tuple[list[Link], str]:
    """The groups that a checkpoint is made of, the oldest first.

    Args:
        read, where: as in ``read_chain``.
        since: name of a checkpoint, and the CRC-32C of its manifest in hex: where the chain comes to just
            that one, only what was written after it is read.

    Returns:
        Also the CRC-32C of the manifest of the checkpoint itself.

    Raises:
        StateError: as ``read_chain``.
    """
    links: list[Link] = []
    sum = ""
    wanted: str | None = None
    base: str | None = name
    while base is not None and (base, wanted) != since:
        group = read(base)
        manifest, files = unseal(group, where(base))
        if manifest.get("name", base) != base:
            raise StateError(
                f"{where(base)}/{MANIFEST} was written as {manifest['name']!r:.80}", code="state.corrupt"
            )
        found = bytes(group[MANIFEST_SUM]).decode().strip()
        if wanted is not None and found != wanted:
            raise StateError(
                f"{where(base)} is not the one that {where(links[-1][0])} was written after",
                code="state.corrupt",
            )
        sum = sum or found
        delta = manifest.get("delta")
        links.append((base, manifest, files))
        # Names ascend, so a chain that comes back to itself can't be.
        if delta is not None and not delta["base"] < base:
            raise StateError(f"{where(base)}/{MANIFEST}: a delta on a later one", code="state.corrupt")
        base, wanted = (None, None) if delta is None else (delta["base"], delta["base_crc32c"])
    links.reverse()
    return links, sum


@dataclass(slots=True)
class DeltaChain:
    """The checkpoint that the next may be a delta on, and all that it stands on.

    Attributes:
        names: of its groups, the first whole.
        sum: of the last one's manifest.
        rows: of its tables.
        delta_bytes: of all its deltas.
        last_bytes: of the last of them.
        whole_bytes: of the whole one.
        capture: number of the one that the last was written of; 0: none.
    """

    names: tuple[str, ...] = ()
    sum: str = ""
    rows: Tables = field(default_factory=dict)
    delta_bytes: int = 0
    last_bytes: int = 0
    whole_bytes: int = 0
    capture: int = 0

    @property
    def full(self) -> bool:
        """The next checkpoint is whole, or should be."""
        after = self.delta_bytes + self.last_bytes
        return not self.names or len(self.names) > DELTAS_MAX or after > self.whole_bytes // 2

    def next_capture(self) -> Capture:
        """What the state of the next checkpoint is to be taken for."""
        return Capture(next_number(), 0 if self.full else self.capture)

    def link(
        self, name: str, files: Mapping[str, Content], known: Known, secret: tuple[int, int] | None
    ) -> ChainLink:
        """What of a state has to be written; it is a delta where that is much smaller.

        Args:
            known: what boxes said of their changes, since the capture that this chain named.
            secret: two numbers of 64 bits by which changed rows are found; None: all is written.
        """
        total = sum(map(size_of, files.values()))
        if secret is None or (total < FULL_BYTES_MIN and not known.partial):
            return ChainLink(files, {}, DeltaChain())
        made = cut(files, self.rows, secret, known)
        if known.partial:
            assert self.names, "only what changed was captured, for a chain that has ended"
            made.whole_bytes = max(made.whole_bytes, self.whole_bytes)
        after = self.delta_bytes + made.nbytes
        too_much = len(self.names) > DELTAS_MAX or after > made.whole_bytes // 2
        if not self.names or (too_much and not known.partial):
            return ChainLink(files, {}, DeltaChain((name,), rows=made.rows, whole_bytes=made.whole_bytes))
        base = {"base": self.names[-1], "base_crc32c": self.sum}
        chain = DeltaChain(
            (*self.names, name),
            rows=made.rows,
            delta_bytes=after,
            last_bytes=made.nbytes,
            whole_bytes=made.whole_bytes,
        )
        return ChainLink(made.files, {"delta": {**base, **made.plan()}}, chain)

    def sealed(self, manifest_sum: Buffer, known: Known) -> Self:
        """It is written."""
        self.sum, self.capture = bytes(manifest_sum).decode().strip(), known.number
        return self


@dataclass(frozen=True, slots=True)
class ChainLink:
    """The next checkpoint of a chain.

    Attributes:
        files: to be written.
        facts: for its manifest.
        chain: what the one after may stand on, once it is written.
    """

    files: Mapping[str, Content]
    facts: dict[str, Any]
    chain: DeltaChain


class Checkpoints:
    """The checkpoints of one fragment in one store, numbered ascending.

    Args:
        secret: two numbers of 64 bits by which changed rows are found; None: no deltas are written.
    """

    def __init__(self, store: Store, *, secret: tuple[int, int] | None = None) -> None:
        self._store = store
        self._secret = secret
        self._good: dict[str, tuple[str, ...]] = {}
        """Of each checkpoint that we wrote or read: the groups it is made of."""
        self._chain = DeltaChain()
        self._positions: dict[str, Mapping[str, int]] = {}
        """Of each good one: the rows of each source that it holds."""
        self._loaded = ""
        self._ahead: dict[str, NewerCheckpoint] = {}
        """Newer than the one that was gone back to."""

    def names(self) -> list[str]:
        """Of all checkpoints, the oldest first."""
        return [name for name in self._store.names() if _NAME.fullmatch(name)]

    def capture(self) -> Capture | None:
        """What the state of the next checkpoint is to be taken for; None: all of it is wanted."""
        return None if self._secret is None else self._chain.next_capture()

    def save(self, files: Mapping[str, Content], facts: Mapping[str, Any], known: Known | None = None) -> str:
        """Store a checkpoint durably, then forget all but the last two good ones and what they need.

        Those that were newer than the one that was loaded stay for longer: see
        ``medusa.engine.state.newer_checkpoints``. It is a delta where that is much smaller; every
        ``DELTAS_MAX``, or when the deltas have grown to half of the state, it is whole.

        Args:
            known: what boxes said of their changes when the state was taken for the last ``capture``.

        Returns:
            Its name.

        Raises:
            StateError: it couldn't be written; the earlier ones are still there.
        """
        names = self.names()
        last = _NAME.fullmatch(names[-1]) if names else None
        name = f"checkpoint-{int(last[1]) + 1 if last else 1:09d}"
        ahead = {"ahead": ahead_to_json(self._ahead)} if self._ahead else {}
        facts = {**facts, "name": name, **ahead}
        known = known or Known()
        link = self._chain.link(name, files, known, self._secret)
        group = seal(link.files, {**facts, **link.facts})
        self._store.write(name, group)
        # What the next is compared with is what lies there now, never one that couldn't be written.
        self._chain = link.chain.sealed(b"".join(pieces_of(group[MANIFEST_SUM])), known)
        self._good[name] = self._chain.names or (name,)
        self._positions[name] = positions_of(facts) or {}
        self._forget(names)
        return name

    def logged(self) -> list[str]:
        """Checkpoints that a run may still be restored from, so that their decision logs are needed."""
        latest = next(reversed(self._positions.values()), {})
        ahead = [each for each in self._ahead.values() if each.is_behind(latest)]
        parts = [part for each in (*self._good.values(), *(each.groups for each in ahead)) for part in each]
        return sorted({*self._good, *parts})

    def logs_ahead(self) -> dict[str, int]:
        """Of the checkpoints newer than the one that was loaded: the log that begins after each."""
        return {name: each.decisions for name, each in self._ahead.items() if each.decisions is not None}

    def _forget(self, names: list[str]) -> None:
        good = list(self._good)
        kept = good[-KEPT:]
        base = self._good[kept[-1]][0]
        if all(self._good[each][0] == base for each in kept):
            # One damaged file must not take all with it: the last that doesn't need it stays too.
            kept += [each for each in good if self._good[each][0] != base][-1:]
        last = [self._positions[each] for each in good[-KEPT:]]
        if len(last) == KEPT:
            rewritten = self._loaded not in good[-KEPT:]
            gone = {name for name, each in self._ahead.items() if each.may_go(last, rewritten=rewritten)}
            self._ahead = {name: each for name, each in self._ahead.items() if name not in gone}
        needed = {part for each in kept for part in self._good[each]}
        needed |= {part for each in self._ahead.values() for part in each.groups}
        self._good = {each: parts for each, parts in self._good.items() if each in kept or each in needed}
        self._positions = {each: found for each, found in self._positions.items() if each in self._good}
        for other in names:
            # What we neither wrote nor read is older.
            if other not in needed:
                self._store.delete(other)

    def load(self, name: str | None = None) -> tuple[dict[str, Any], dict[str, Buffer]]:
        """The manifest and the files of a checkpoint, by default the last.

        Raises:
            StateError: there is none, or it is damaged: then says which earlier one is whole.
        """
        names = self.names()
        if not names:
            raise StateError(f"{self._store.where('')}: holds no checkpoint", code="state.none")
        wanted = name or names[-1]
        if wanted not in names:
            raise StateError(
                f"{self._store.where('')}: has no checkpoint {wanted!r}",
                hint=f"there is: {', '.join(names)}",
                code="state.none",
            )
        try:
            manifest, files, parts = self._read(wanted)
        except StateError as error:
            raise StateError(error.message, hint=self._offer(wanted, names), code=error.code) from None
        try:
            self._ahead = ahead_from_json(manifest.get("ahead"), names)
        except ValueError as error:
            raise StateError(
                f"{self._store.where(wanted)}/{MANIFEST}: {error}", code="state.corrupt"
            ) from None
        self._ahead |= {each: self._look_ahead(each) for each in names[names.index(wanted) + 1 :]}
        self._loaded = wanted
        self._good = {wanted: parts}
        self._positions = {wanted: positions_of(manifest) or {}}
        self._chain = DeltaChain()
        return manifest, files

    def _look_ahead(self, name: str) -> NewerCheckpoint:
        """A checkpoint newer than the one that is loaded, as far as its manifest can be read."""
        groups, facts = [name], None
        try:
            while True:
                manifest = _manifest(self._store.read(groups[-1]), self._store.where(groups[-1]))
                facts = facts or manifest
                delta = manifest.get("delta")
                if delta is None or not delta["base"] < groups[-1]:
                    break
                groups.append(delta["base"])
        except StateError as error:
            if facts is None and error.code not in ("state.corrupt", "state.missing"):
                return NewerCheckpoint((name,), readable=False)
        if facts is None:
            return NewerCheckpoint((name,))
        decisions = facts.get("decisions")
        return NewerCheckpoint(
            tuple(groups),
            positions_of(facts),
            decisions if type(decisions) is int and decisions > 0 else None,
        )

    def _read(self, name: str) -> tuple[dict[str, Any], dict[str, Buffer], tuple[str, ...]]:
        return read_chain(name, self._store.read, self._store.where)

    def _offer(self, wanted: str, names: list[str]) -> str:
        for other in reversed(names):
            if other != wanted:
                try:
                    self._read(other)
                except StateError:
                    continue
                return f"{other} is whole: restore(..., checkpoint={other!r})"
        return "no other checkpoint there is whole"
