"""The part of a node's configuration that says where it keeps checkpoints and its catalog.

store = "disk"              # a row of STORES
data = "state/edge-1"       # where there; a place that needs no such word has none

``medusa.runtime.store.node_store`` opens what is named here.
"""

from __future__ import annotations

from dataclasses import dataclass

from medusa.nodes.config.config_file import ConfigFile

__all__ = ["STORES", "StoreKind", "forgets", "read_store"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreKind:
    """A place.

    Attributes:
        name: as the configuration says it.
        keeps: what was written is there after the node's end. Else its fragments are those of
            ``nodes.diskless``, and nothing can promise more than its neighbours keep.
        data: what the field ``data`` says of it, with an example, for messages; empty: it has no such field.
        folder: ``data`` is a folder of this machine, and may be relative to the configuration's.
    """

    name: str
    keeps: bool
    data: str = ""
    folder: bool = False


_DISK = StoreKind(name="disk", keeps=True, data='a folder: data = "state/edge-1"', folder=True)
_MEMORY = StoreKind(name="memory", keeps=False)

STORES: dict[str, StoreKind] = {each.name: each for each in (_DISK, _MEMORY)}
"""The first is what a node has that doesn't say."""


def forgets(store: str) -> bool:
    """Nothing there outlives its node. Of a place that only a later release knows nobody says so."""
    return store in STORES and not STORES[store].keeps


def read_store(file: ConfigFile, *, folder: str) -> tuple[str, str]:
    """The fields ``store`` and ``data``.

    Args:
        folder: what a relative ``data`` is relative to; empty: it stays as it is.

    Raises:
        ConfigError: no such place, or ``data`` is missing, isn't allowed, or one that can't be.
    """
    name = file.root.get("store", next(iter(STORES)))
    if not isinstance(name, str) or name not in STORES:
        allowed = ", ".join(f'"{each}"' for each in STORES)
        raise file.error("store", f"{name!r} is no store", hint=f"allowed: {allowed}")
    kind = STORES[name]
    if not kind.data:
        if "data" in file.root:
            raise file.error(
                "data",
                f'a node with store = "{name}" writes nothing, so `data` would be empty for ever',
                hint="remove `data`, or `store`",
            )
        return name, ""
    data = file.text("data")
    if not data.strip() or "\0" in data:
        why = "data has a NUL" if "\0" in data else "data is empty"
        raise file.error("data", why, hint=kind.data)
    relative = bool(folder) and kind.folder and not data.startswith("/")
    return name, f"{folder}/{data}" if relative else data
