"""Checkpoints: groups of files with a manifest that says what every byte of them must be.

A group holds the files of a fragment (``medusa.engine.state``), ``manifest.json`` with the length
and CRC-32C of each, and ``manifest.crc32c`` with that of the manifest. The store makes a group
appear whole or not at all; the sums find what goes wrong later.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from medusa._native import crc32c
from medusa.errors import StateError
from medusa.ports import Buffer, Store

__all__ = ["KEPT", "MANIFEST", "Checkpoints", "seal", "unseal"]

KEPT = 2
"""Checkpoints kept: the last, and the one before in case the last is damaged."""

MANIFEST = "manifest.json"
MANIFEST_SUM = "manifest.crc32c"
FORMAT = "medusa-checkpoint"
VERSION = 1

_NAME = re.compile(r"checkpoint-(\d{9,18})")


def seal(files: Mapping[str, Buffer], facts: Mapping[str, Any]) -> dict[str, Buffer]:
    """The files with their manifest.

    Args:
        facts: JSON values that go into the manifest besides.
    """
    listed = {
        name: {"bytes": len(memoryview(data).cast("B")), "crc32c": f"{crc32c(data):08x}"}
        for name, data in files.items()
    }
    manifest = {"format": FORMAT, "version": VERSION, **facts, "files": listed}
    text = json.dumps(manifest, indent=1).encode()
    return {**files, MANIFEST: text, MANIFEST_SUM: f"{crc32c(text):08x}\n".encode()}


def unseal(
    group: Mapping[str, Buffer], where: str = "checkpoint"
) -> tuple[dict[str, Any], dict[str, Buffer]]:
    """The manifest and the files that it lists, every byte checked.

    Args:
        where: the group as a person would look for it, for messages.

    Raises:
        StateError: names the file that is missing, too many, or damaged.
    """
    for name in (MANIFEST, MANIFEST_SUM):
        if name not in group:
            raise StateError(f"{where}/{name} is missing", code="state.missing")
    text = bytes(group[MANIFEST])
    if bytes(group[MANIFEST_SUM]) != f"{crc32c(text):08x}\n".encode():
        raise StateError(f"{where}/{MANIFEST} is damaged: its checksum is wrong", code="state.corrupt")
    manifest = _parse(text, where)
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
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise StateError(
            f"{where}/{MANIFEST}: not the manifest of a checkpoint", code="state.corrupt"
        ) from None
    if version != VERSION or not listed:
        raise StateError(
            f"{where}/{MANIFEST}: has version {version!r}, this program reads {VERSION}", code="state.version"
        )
    return manifest  # type: ignore[no-any-return]


class Checkpoints:
    """The checkpoints of one fragment in one store, numbered ascending."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._good: list[str] = []

    def names(self) -> list[str]:
        """Of all checkpoints, the oldest first."""
        return [name for name in self._store.names() if _NAME.fullmatch(name)]

    def save(self, files: Mapping[str, Buffer], facts: Mapping[str, Any]) -> str:
        """Store a checkpoint durably, then forget all but the last two good ones.

        Returns:
            Its name.

        Raises:
            StateError: it couldn't be written; the earlier ones are still there.
        """
        names = self.names()
        last = _NAME.fullmatch(names[-1]) if names else None
        name = f"checkpoint-{int(last[1]) + 1 if last else 1:09d}"
        self._store.write(name, seal(files, facts))
        self._good = [*self._good, name][-KEPT:]
        for other in names:
            # What we neither wrote nor read: damaged, or ahead of the one we went back to.
            if other not in self._good:
                self._store.delete(other)
        return name

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
            found = self._read(wanted)
        except StateError as error:
            raise StateError(error.message, hint=self._offer(wanted, names), code=error.code) from None
        self._good = [wanted]
        return found

    def _read(self, name: str) -> tuple[dict[str, Any], dict[str, Buffer]]:
        return unseal(self._store.read(name), self._store.where(name))

    def _offer(self, wanted: str, names: list[str]) -> str:
        for other in reversed(names):
            if other != wanted:
                try:
                    self._read(other)
                except StateError:
                    continue
                return f"{other} is whole: restore(..., checkpoint={other!r})"
        return "no other checkpoint there is whole"
