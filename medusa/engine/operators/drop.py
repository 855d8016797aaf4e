"""Drop: leaves rows out, by chance, by value, or whole windows by chance. ``.dropped`` has them.

Chance is a function of the query and the data: a hash decides, so cuts, threads and restores don't
matter, and the same run gives the same rows.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from medusa._native import hash_partition
from medusa.elements import Train
from medusa.engine.core.box import BoxState, Operator, Stateless
from medusa.engine.core.dead_letters import DeadLetters
from medusa.engine.core.rows import as_bools, as_int64, filter_rows
from medusa.engine.expressions.box_expressions import Columns
from medusa.query.boxes import RandomDrop, Schema, SemanticDrop, WindowDrop

__all__ = ["Chance", "RandomDropBox", "SemanticDropBox", "WindowDropBox", "mixed"]

Words = npt.NDArray[np.uint64]

_STEP = np.uint64(0x9E3779B97F4A7C15)


def mixed(words: Words) -> Words:
    """SplitMix64's finaliser (Steele, Lea and Flood, OOPSLA 2014): each bit depends on all bits."""
    z = words + _STEP
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


class Chance:
    """True for the share ``rate`` of all numbers, others for each seed."""

    def __init__(self, rate: float, seed: int) -> None:
        self._seed = mixed(np.array([seed], np.uint64))
        self._below = int(rate * 2.0**64)

    def __call__(self, words: Words) -> npt.NDArray[np.bool_]:
        if self._below >= 1 << 64:
            return np.ones(len(words), np.bool_)
        return mixed(words ^ self._seed) < np.uint64(self._below)


class _Parting(Operator):
    """Some rows leave by the main port, those dropped by ``dropped``."""

    boundary_ports = ("", "dropped")

    def on_boundary(self, time_us: int) -> None:
        self.advance(time_us)

    def part(self, train: Train, drop: npt.NDArray[np.bool_]) -> None:
        count = int(np.count_nonzero(drop))
        self.dropped += count
        if count < len(train):
            self.emit_train(filter_rows(train, pa.array(~drop)) if count else train)
        if count and self.has_readers("dropped"):
            self.emit(filter_rows(train, pa.array(drop)), "dropped")


class RandomDropBox(_Parting):
    """The number of a row among those that came decides, with the seed."""

    kind = "random_drop"

    def __init__(self, spec: RandomDrop) -> None:
        super().__init__(spec.id, inputs=1)
        self._chance = Chance(spec.rate, spec.seed)
        self._seen = 0

    def on_train(self, input: int, train: Train) -> None:
        numbers = np.arange(self._seen, self._seen + len(train), dtype=np.uint64)
        self._seen += len(train)
        self.part(train, self._chance(mixed(numbers)))

    def save_more(self, state: BoxState) -> None:
        state.meta["seen"] = self._seen

    def load_more(self, state: BoxState) -> None:
        seen = state.meta["seen"]
        if type(seen) is not int or not 0 <= seen < 1 << 62:
            raise ValueError(f"seen is no number of rows: {seen!r}")
        self._seen = seen


class SemanticDropBox(_Parting, Stateless):
    """What the predicate is true for goes; what it is false or null for stays."""

    kind = "semantic_drop"

    def __init__(self, spec: SemanticDrop, *, input: Schema, letters: DeadLetters, timed: bool) -> None:
        super().__init__(spec.id, inputs=1)
        self._predicate = Columns.single(self, letters, spec.predicate, input, timed=timed)

    def on_train(self, input: int, train: Train) -> None:
        whole, (drop,) = self._predicate.compute(train)
        if len(whole):
            self.part(whole, as_bools(drop))


class WindowDropBox(_Parting, Stateless):
    """The number of the window and the hash of the key decide, with the seed; late rows too."""

    kind = "window_drop"

    def __init__(self, spec: WindowDrop, *, input: Schema, letters: DeadLetters) -> None:
        super().__init__(spec.id, inputs=1)
        self._window_us = spec.window_us
        self._chance = Chance(spec.rate, spec.seed)
        self._keys = Columns(self, letters, spec.keys, input) if spec.keys else None

    def on_train(self, input: int, train: Train) -> None:
        keys: list[pa.Array] = []
        if self._keys is not None:
            train, keys = self._keys.compute(train)
        if not len(train):
            return
        words = mixed((as_int64(train.times) // self._window_us).view(np.uint64))
        if keys:
            hashes = hash_partition(
                pa.RecordBatch.from_arrays(keys, names=[str(i) for i in range(len(keys))])
            )
            words = mixed(words ^ pa.array(hashes).to_numpy())
        self.part(train, self._chance(words))
