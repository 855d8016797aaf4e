"""The folders of a run: each has one use."""

from __future__ import annotations

import os

from medusa.errors import QueryError
from medusa.runtime.store.folder_store import path_of

__all__ = ["check_folders"]

_WORDS = {"checkpoint": "the folder of the checkpoints", "history": "the folder of the histories"}


def check_folders(**folders: str | os.PathLike[str] | None) -> None:
    """Refuse one folder for two uses; nothing is done on disk.

    Args:
        folders: of each argument (``checkpoint``, ``history``, ``spill``, in this order) what it was given.

    Raises:
        QueryError: two are the same, or one is no path.
    """
    known: dict[str, str] = {}
    for name, path in folders.items():
        if path is None:
            continue
        place = os.path.realpath(path_of(path, name))
        if place in known:
            raise QueryError(
                f"{name}={os.fspath(path)!r} is {_WORDS[known[place]]}",
                hint="give each a folder of its own",
                code="query.folder",
            )
        known[place] = name
