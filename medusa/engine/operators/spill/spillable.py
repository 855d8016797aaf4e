"""Which boxes are made so that their state may lie on disk."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from medusa.engine.core.box import Operator
from medusa.engine.core.site import Site
from medusa.engine.operators.spill.spill_box import SpillBox
from medusa.engine.operators.spill.spill_join import JoinKind
from medusa.engine.operators.spill.spill_kind import Kind
from medusa.engine.operators.spill.spill_kinds import DistinctKind, RunningKind, SessionKind
from medusa.engine.operators.spill.spill_table import LookupKind, TableKind
from medusa.query.boxes import (
    AsofJoin,
    Box,
    Distinct,
    Join,
    Lookup,
    Running,
    Session,
    Table,
    WindowJoin,
)

__all__ = ["make_spilling"]

KINDS: Mapping[type, Callable[[Any, Site, Operator], Kind]] = {
    Join: JoinKind,
    WindowJoin: JoinKind,
    AsofJoin: JoinKind,
    Running: RunningKind,
    Session: SessionKind,
    Distinct: DistinctKind,
    Lookup: LookupKind,
    Table: TableKind,
}


def make_spilling(spec: Box, site: Site, make: Callable[[], Operator]) -> Operator:
    """The box that ``make`` gives; where state may go to disk and has keys, one that can part with it."""
    room = None if site.storage is None else site.storage.room
    kind = KINDS.get(type(spec))
    if room is None or kind is None or getattr(spec, "keys", True) == ():
        return make()
    return SpillBox(make, lambda plain: kind(spec, site, plain), room, site.letters)
