"""The output of a box, and every box that can be added to it."""

from __future__ import annotations

from medusa.query.stream.flow import FlowMethods
from medusa.query.stream.joins import JoinMethods
from medusa.query.stream.order import OrderMethods
from medusa.query.stream.rows import RowMethods
from medusa.query.stream.tables import TableMethods
from medusa.query.stream.user import UserMethods
from medusa.query.stream.window_kinds import WindowKindMethods
from medusa.query.stream.windows import WindowMethods
from medusa.query.suggest_methods import Suggests

__all__ = ["Stream"]


class Stream(
    RowMethods,
    WindowMethods,
    WindowKindMethods,
    JoinMethods,
    FlowMethods,
    OrderMethods,
    UserMethods,
    TableMethods,
    Suggests,
):
    """The output of a box; immutable. Its methods add boxes to the query and give their output."""

    __slots__ = ()
