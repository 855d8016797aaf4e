"""The boxes of a query: plain frozen data, checked when built, equal in memory, file and on links.

The class of a box has everything that is asked of its kind before it runs (``base.BoxData``); nothing else
in ``query`` lists kinds. A new kind: its class in a file here, its name in this one. That of a window that
closes group by group stands in ``windows_per_group`` alone, with its name.
"""

from __future__ import annotations

from typing import TypeAlias, get_args

from medusa.query.boxes.base import BoxData
from medusa.query.boxes.connections import ConnectionPoint
from medusa.query.boxes.flow import Distinct, RandomDrop, Route, SemanticDrop, WindowDrop
from medusa.query.boxes.joins import AsofJoin, Join, WindowJoin
from medusa.query.boxes.order import BSort, Resample, SUnion, WSort
from medusa.query.boxes.rows import Filter, Select, Union, WithColumns
from medusa.query.boxes.running import Running
from medusa.query.boxes.sinks import Sink
from medusa.query.boxes.sources import Source
from medusa.query.boxes.splits import KeyRouter, OrderedMerge
from medusa.query.boxes.tables import Lookup, Table, Update
from medusa.query.boxes.user import Apply, Process
from medusa.query.boxes.windows_of_time import Aggregate, Top
from medusa.query.boxes.windows_per_group import GroupWindow
from medusa.query.structs import AggregateCall, Field, Function, Input, Schema, StrictData

__all__ = [
    "FORMAT_VERSION",
    "Aggregate",
    "AggregateCall",
    "AsofJoin",
    "Apply",
    "BSort",
    "Box",
    "BoxData",
    "ConnectionPoint",
    "StrictData",
    "Distinct",
    "Field",
    "Filter",
    "Function",
    "Graph",
    "GroupWindow",
    "Input",
    "Join",
    "KINDS",
    "KeyRouter",
    "Lookup",
    "OrderedMerge",
    "Process",
    "RandomDrop",
    "Resample",
    "Route",
    "Running",
    "SUnion",
    "Schema",
    "Select",
    "SemanticDrop",
    "Sink",
    "Source",
    "Table",
    "Top",
    "Union",
    "Update",
    "WSort",
    "WindowDrop",
    "WindowJoin",
    "WithColumns",
]

FORMAT_VERSION = 1
"""Of the JSON and msgpack form of a graph; a reader refuses a higher one."""

Box: TypeAlias = (
    Source
    | Filter
    | Select
    | WithColumns
    | Union
    | Aggregate
    | Join
    | WindowJoin
    | AsofJoin
    | Route
    | RandomDrop
    | SemanticDrop
    | WindowDrop
    | Distinct
    | SUnion
    | BSort
    | WSort
    | Resample
    | Apply
    | Process
    | Table
    | Lookup
    | GroupWindow
    | Running
    | Top
    | ConnectionPoint
    | KeyRouter
    | OrderedMerge
    | Sink
)

KINDS: tuple[type[BoxData], ...] = get_args(Box)
"""The classes of all kinds of boxes."""


class Graph(StrictData, frozen=True, kw_only=True):
    """A whole query, or a fragment of one: boxes in an order in which inputs come first."""

    name: str
    boxes: tuple[Box, ...]
    version: int = FORMAT_VERSION
