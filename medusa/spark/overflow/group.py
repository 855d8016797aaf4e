"""One group of a fragment on a worker: the usual engine, fed what a trigger brings; its state as files."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import msgspec

from medusa.elements import Element
from medusa.engine.fragment import Fragment
from medusa.errors import DataError
from medusa.ports import Buffer, Clock
from medusa.query.codec import graph_from_msgpack
from medusa.spark.overflow.items import decode, encode

__all__ = ["HELD_MAX", "Made", "State", "GroupTask", "run_group"]

HELD_MAX = 64
TOKEN_BYTES = 16

_HELD: OrderedDict[bytes, Fragment] = OrderedDict()
"""Token -> the fragment that has that state. A worker that had a group before needn't read its state."""


class State(msgspec.Struct, frozen=True):
    """The state of a group.

    Attributes:
        token: names it; no other has it.
    """

    token: bytes
    files: dict[str, bytes]

    @classmethod
    def of(cls, files: Mapping[str, Buffer]) -> State:
        """A state that no worker holds."""
        return cls(os.urandom(TOKEN_BYTES), {name: bytes(data) for name, data in files.items()})


class GroupTask(msgspec.Struct, frozen=True, kw_only=True):
    """What one group is to do in one trigger.

    Attributes:
        graph: as ``graph_to_msgpack`` gives it.
        modules: imported first: they register functions of users.
        items: what to feed, as ``items.encode`` gives it.
    """

    graph: bytes
    modules: tuple[str, ...]
    items: bytes


class Made(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it.

    Attributes:
        items: what left, as ``items.encode`` gives it.
        refused: number of an element -> why nothing of it was taken.
        left_out: number of an element -> rows of it that were left out under overload.
        figures: of its boxes, as ``Fragment.figures`` gives them.
        failed: why the group can't go on; empty: it can.
    """

    items: bytes
    refused: dict[int, str] = {}
    left_out: dict[int, int] = {}
    figures: list[dict[str, Any]] = []
    failed: str = ""


def run_group(task: GroupTask, state: State, clock: Clock | None = None) -> tuple[Made, State]:
    """Feed it, in order; the answer and the state behind it. Nothing else of the process changes.

    Where the group has failed its state is as it was.

    Args:
        clock: by which its boxes are at work; None: nobody measures that.
    """
    try:
        for module in task.modules:
            import_module(module)
        fragment = _HELD.pop(state.token, None)
        if fragment is None:
            fragment = Fragment.restore(graph_from_msgpack(task.graph), state.files, clock=clock)
        refused: dict[int, str] = {}
        left_out: dict[int, int] = {}
        left: list[tuple[int, str, Element]] = []
        for number, source, element in decode(task.items):
            try:
                fragment.feed(source, element)
            except DataError as error:
                refused[number] = str(error)
            if rows := fragment.ruled.take():
                left_out[number] = rows
            left += [(number, sink, each) for sink in fragment.sinks for each in fragment.drain(sink)]
        made = Made(items=encode(left), refused=refused, left_out=left_out, figures=fragment.figures())
        after = State.of(fragment.snapshot())
    except Exception as error:
        return Made(items=encode(()), failed=f"{type(error).__name__}: {error}"), state
    _HELD[after.token] = fragment
    while len(_HELD) > HELD_MAX:
        _HELD.popitem(last=False)
    return made, after
