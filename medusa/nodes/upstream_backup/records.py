"""What checkpoints and marks say of a fragment that is recovered by upstream backup."""

from __future__ import annotations

import msgspec

__all__ = ["MarksRecord", "InputMoment", "OutputSkips", "WarmUpTarget", "WarmUpRecord"]

OutputSkips = tuple[tuple[int, int], ...]
"""Numbers that no row of a stream has, in order: from each first one to before the second."""


class InputMoment(msgspec.Struct, frozen=True, array_like=True):
    """Where the inputs stood once, at rest.

    Attributes:
        inputs: (source, publisher, next row, the sender's note) of each; where a node sends, whichever it is,
            there is no publisher.
        newest: source -> the largest time of a row before it, in us; a source without one isn't there.
        promised: source that publishers feed -> the time below which rows were late.
    """

    inputs: tuple[tuple[str, str, int, bytes], ...] = ()
    newest: dict[str, int] = {}
    promised: dict[str, int] = {}

    def position(self, source: str, publisher: str) -> int:
        """The next row of an input."""
        return next((seq for of, who, seq, _ in self.inputs if (of, who) == (source, publisher)), 0)

    def note(self, source: str, publisher: str) -> bytes:
        """The note of its sender."""
        return next((note for of, who, _, note in self.inputs if (of, who) == (source, publisher)), b"")


class WarmUpTarget(msgspec.Struct, frozen=True, array_like=True):
    """Where an input stood at the mark: the next row, and what its sender had promised."""

    source: str
    publisher: str
    seq: int
    boundary_us: int


class WarmUpRecord(msgspec.Struct, frozen=True, array_like=True):
    """What a successor has yet to do before anything that comes out counts.

    Attributes:
        targets: rows below these are fed, and what comes out was put out before.
        first: source that publishers feed -> what it is promised before any row: what was late stays late.
        last: the same, once all rows are fed.
    """

    targets: tuple[WarmUpTarget, ...]
    first: dict[str, int]
    last: dict[str, int]


class MarksRecord(msgspec.Struct, frozen=True):
    """Beside a checkpoint, or what a mark is beside positions.

    Attributes:
        moments: from which a successor could begin, oldest first.
        newest: as in ``InputMoment``, by now.
        warm_up: None: it is done, or there was none.
        ahead: sink -> by so much more than the engine the stream calls its rows.
        skips: sink -> numbers that no row has.
    """

    moments: tuple[InputMoment, ...]
    newest: dict[str, int]
    warm_up: WarmUpRecord | None = None
    ahead: dict[str, int] = {}
    skips: dict[str, OutputSkips] = {}
