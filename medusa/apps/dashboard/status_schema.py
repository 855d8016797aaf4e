"""What a node says of itself, checked: an answer of another version, or a hostile one, breaks no view.

Fields that are not there have defaults; a field of another type makes the whole answer unreadable.
"""

from __future__ import annotations

from typing import Any

import msgspec

from medusa.errors import DataError
from medusa.runtime.client.box_figures import BoxFigures

__all__ = ["Box", "Fragment", "Input", "Named", "Output", "Receiver", "Status", "status_of"]


class Box(BoxFigures, frozen=True, kw_only=True):
    """One box of a fragment."""

    waits_for: str = ""
    held_by: str = ""
    unmoved_us: int | None = None


class Input(msgspec.Struct, frozen=True, kw_only=True, rename={"origin": "from"}):
    """One stream that a fragment takes, of one publisher or node."""

    source: str
    stream: str
    origin: str
    state: str = ""
    refusal: str = ""
    rows: int = 0
    next_row: int = 0
    lost_rows: int = 0
    refused_rows: int = 0
    queue_bytes: int = 0
    boundary_us: int | None = None


class Receiver(msgspec.Struct, frozen=True, kw_only=True):
    """One node or program that reads an output."""

    to: str
    state: str = ""
    plain: bool = False
    sent_row: int = 0
    received_row: int = 0
    durable_row: int = 0
    lost_rows: int = 0


class Named(msgspec.Struct, frozen=True, kw_only=True):
    """One named subscription of an output."""

    name: str
    owner: str = ""
    acknowledged_row: int = 0
    kept_bytes: int = 0
    connected: bool = False
    lost_rows: int = 0


class Output(msgspec.Struct, frozen=True, kw_only=True):
    """One stream that leaves a fragment; ``of``: the box that it leaves by, where another query reads it."""

    sink: str
    stream: str
    of: str = ""
    rows: int = 0
    kept_bytes: int = 0
    spilled_bytes: int = 0
    shed_rows: int = 0
    boundary_us: int | None = None
    named: tuple[Named, ...] = ()
    receivers: tuple[Receiver, ...] = ()


class Fragment(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a query at a node."""

    fragment: str
    query: str = ""
    state: str = ""
    failed: str = ""
    rows_in: int = 0
    rows_out: int = 0
    rows_in_per_s: float = 0
    rows_out_per_s: float = 0
    queue_bytes: int = 0
    kept_bytes: int = 0
    shed_rows: int = 0
    lag_us: int = 0
    boundary_us: int | None = None
    lost_rows: int = 0
    refused_rows: int = 0
    late: int = 0
    dead: int = 0
    state_bytes: int = 0
    checkpoints: int = 0
    disk_error: str = ""
    boxes: dict[str, Box] = {}
    arcs: tuple[tuple[str, str, str], ...] = ()
    inputs: tuple[Input, ...] = ()
    outputs: tuple[Output, ...] = ()

    def is_held(self, box: str) -> bool:
        """Whether an input holds a box back while another is further on."""
        above = [self.boxes.get(origin) for origin, _, target in self.arcs if target == box]
        return len({each.finished or each.boundary for each in above if each is not None}) > 1


class Away(msgspec.Struct, frozen=True, kw_only=True):
    """A peer that isn't there; ``refusal``: why it lets the node not in, or empty."""

    refusal: str = ""


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """A node."""

    node: str
    participant: str = ""
    rows_in: int = 0
    rows_out: int = 0
    rows_in_per_s: float = 0
    rows_out_per_s: float = 0
    queue_bytes: int = 0
    kept_bytes: int = 0
    lost_rows: int = 0
    shed_rows: int = 0
    late: int = 0
    dead: int = 0
    lag_us: int = 0
    disk_error: str = ""
    peers: dict[str, str] = {}
    away: dict[str, Away] = {}
    fragments: tuple[Fragment, ...] = ()


def status_of(said: Any) -> Status:
    """The status of a node, as ``Federation.status`` gives it.

    Raises:
        DataError: it can't be read.
    """
    try:
        return msgspec.convert(said, Status)
    except msgspec.ValidationError as error:
        raise DataError(
            f"the status can't be read: {error}",
            hint="is the node of another version?",
            code="data.status",
        ) from None
