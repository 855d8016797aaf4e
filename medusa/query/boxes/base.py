"""What every kind of box says of itself: the one place to which a kind adds its answers.

A box is a frozen struct (the file format and the wire format), and its class is the descriptor of its kind:
the shape of what comes out, its text in plans, what it waits for, how it is split, shed and bounded. What
runs it is in ``medusa.engine.operator_kinds``.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias

import msgspec

from medusa.errors import QueryError
from medusa.query.boxes.window_function import WindowFunction
from medusa.query.expressions.expression import Named
from medusa.query.shape import StreamShape
from medusa.query.structs import Field, Function, Schema
from medusa.query.text_growth import TextGrowth, grown_by
from medusa.query.types import COLUMNS_MAX

__all__ = [
    "DEAD_SCHEMA",
    "MANY",
    "ROW_BYTES",
    "NO_KEY",
    "PART_OF_MERGE",
    "PART_OF_SPLIT",
    "BoxData",
    "SplitPlan",
    "Sharing",
    "Thinned",
    "shape_of",
]

MANY = 1_000
"""Inputs of a box that takes any number of them."""

ROW_BYTES = 16
"""What one column of a row that is kept is counted as."""

DEAD_SCHEMA: Schema = (Field("box", "utf8"), Field("error", "utf8"), Field("row", "utf8"))
"""Of every ``.dead``: the box, why the row failed, and the row as JSON."""

NO_KEY = "it has no key, so one part would get all rows"
PART_OF_SPLIT = "it is part of a split already"
PART_OF_MERGE = "it is a part already, whose rows a merge orders: merge it, and split it in more"

Sharing: TypeAlias = Literal["rows", "keys", "one"]
Thinned: TypeAlias = Literal["rows", "windows", "pairs", ""]


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitPlan:
    """How a box runs as parts behind routers, and how their rows are merged.

    Attributes:
        keys: of each input, by which its rows are shared; none: they go in blocks.
        part: the box of every part.
        positions: columns of the parts' rows that number the rows of which they were made.
        numbers: of each input, the column that its router adds; None: the positions.
        by, arrival, within_us, release: as of ``OrderedMerge``.
        last_time: as of ``KeyRouter``.
    """

    keys: Sequence[tuple[Named, ...]]
    part: Any
    positions: tuple[str, ...]
    numbers: tuple[str | None, ...] | None = None
    by: tuple[str, ...] = ()
    arrival: bool = False
    within_us: int = 0
    release: str | None = None
    last_time: bool = False


class BoxData(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False, kw_only=True):
    """What holds for every box of a kind. The defaults are those of a box that keeps rows of one input.

    Attributes:
        time_dependent: its answer depends on time, so late rows never enter it.
        order_dependent: the order in which its rows arrive shows in its output.
        determinism: ``arbitrary`` (depends on arrival order), ``deterministic`` (on its input only, as
            a sequence), ``convergent`` (and forgets old input), ``repeatable`` (one row at a time).
        inputs_least, inputs_most: how many inputs it has.
        sharing: ``rows``: any rows may go to any copy of it; ``keys``: those of a key go together; ``one``:
            it stays whole.
        results_start: its results are windows of time, whose rows begin at their ``window_start``.
        awaits_boundary: a row that it has waits for a boundary of each input, so that one that brings none
            holds it up.
        window_functions: by which SQL asks for it.
    """

    time_dependent: ClassVar[bool] = False
    order_dependent: ClassVar[bool] = False
    determinism: ClassVar[str] = "repeatable"
    inputs_least: ClassVar[int] = 1
    inputs_most: ClassVar[int] = 1
    sharing: ClassVar[Sharing] = "one"
    results_start: ClassVar[bool] = False
    awaits_boundary: ClassVar[bool] = False
    window_functions: ClassVar[tuple[WindowFunction, ...]] = ()

    id: str

    # --- what it is -----------------------------------------------------------------------------------

    @property
    def ports(self) -> tuple[str, ...]:
        """The ports from which arcs may begin: ``""`` is the output proper, which every box has."""
        return ("",)

    @property
    def functions(self) -> tuple[Function, ...]:
        """The functions of users that it names."""
        return ()

    @abstractmethod
    def shape(self, inputs: Sequence[StreamShape], label: str, port: str) -> StreamShape:
        """Check the box against its inputs, of which there are enough, and say what comes out of a port.

        Raises:
            QueryError: names the box, what was expected and what came.
        """

    # --- for people -----------------------------------------------------------------------------------

    @abstractmethod
    def describe(self) -> str:
        """Its parameters as text; empty for a sink without quality of service."""

    def brief(self) -> tuple[str, ...]:
        """Its parameters in one or two short lines, for a drawing."""
        text = self.describe()
        return (text,) if text else ()

    @property
    def waits(self) -> str:
        """What must come before the box sends a row that it has; empty where it never waits."""
        return ""

    # --- rows and their times -------------------------------------------------------------------------

    @property
    def keeps_state(self) -> bool:
        """Whether more rows may make it hold more."""
        return True

    def reads_time(self, below: bool) -> bool:
        """Whether it reads the times of its rows; ``below``: whether somebody reads those of its output."""
        return True

    def column_from(self, name: str) -> str | None:
        """The column of its input that leaves, unchanged and of every row that does, as ``name``."""
        return None

    def row_key(self, above: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
        """The columns that no two of its rows share, given those of its inputs; empty where nothing tells."""
        return ()

    @property
    def reach_us(self) -> int:
        """How far behind the time of a result the rows may be that it is made of."""
        return 0

    @property
    def last_result(self) -> tuple[int, int, int] | None:
        """From the time of a row to that of the last result it has a part in, as (advance, size, later): the
        end of the last window that has the time, less 1, or so much later. None: that can't be told."""
        return None

    # --- sharing and shedding -------------------------------------------------------------------------

    @property
    def stays_whole(self) -> str:
        """Why it can't be split, whatever its inputs are; empty where it can."""
        return "" if self.sharing != "one" else "rows of different keys meet in it"

    def split(self, name: Callable[[str], str]) -> SplitPlan | str:
        """How it runs as parts, or why it doesn't.

        Args:
            name: makes a column's name that is free, with this suffix.
        """
        if self.sharing == "rows":
            return SplitPlan(keys=[()], part=self, positions=(name(""),), arrival=True)
        return self.stays_whole or SplitPlan(
            keys=[getattr(self, "keys", ())], part=self, positions=(name(""),)
        )

    def without(self, hidden: Sequence[str]) -> Any:
        """A part as the box that it is a part of: without these columns."""
        return self

    @property
    def when_thinned(self) -> Thinned:
        """What dropping rows above does to its output: it lacks what came of those rows (``rows``), of the
        windows that they were in (``windows``: rows are dropped by whole windows then), of their pairs
        (``pairs``), or it is another one (empty)."""
        return ""

    @property
    def embedded_only(self) -> tuple[str, str] | None:
        """What it does that no node can do yet, and a hint; None: nodes run it."""
        return None

    # --- what it may ask for --------------------------------------------------------------------------

    @property
    def rows_made(self) -> float:
        """Rows that it makes of one at most; joins are counted as if each row met one other."""
        return 1.0

    @property
    def kept_bytes(self) -> int:
        """Bytes of rows that it keeps by number, for one group."""
        return 0

    def texts(self, came: Sequence[TextGrowth]) -> TextGrowth:
        """How long the texts of its output are, given those of its inputs."""
        return grown_by(self, came)


def shape_of(box: BoxData, inputs: Sequence[StreamShape], *, label: str, port: str = "") -> StreamShape:
    """Check a box against its inputs and say what comes out of ``port``.

    The builder asks box by box, ``medusa.query.graph`` for a whole graph: both refuse the same things
    with the same words.

    Raises:
        QueryError: names the box, what was expected and what came.
    """
    least, most = box.inputs_least, box.inputs_most
    if not least <= len(inputs) <= most:
        expected = str(least) if least == most else f"at least {least}"
        raise QueryError(f"{label}: expected {expected} inputs, got {len(inputs)}", code="query.arity")
    if port == "dead" and port not in box.ports:
        box.shape(inputs, label, "")
        return StreamShape(f"box {box.id + '.dead'!r}", DEAD_SCHEMA, timed=False)
    made = box.shape(inputs, label, port)
    if port not in box.ports:
        raise QueryError(
            f"{label}: has no port {port[:60]!r}", hint="a source with time= has .late", code="query.port"
        )
    if len(made.schema) > COLUMNS_MAX:
        raise QueryError(f"{label}: the output has more than {COLUMNS_MAX:,} columns", code="query.limit")
    return made
