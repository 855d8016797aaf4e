"""A stream that is read as a table: one row per key, kept corrected while tentative rows come and go."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from medusa.elements import START_US, Train
from medusa.errors import LinkError
from medusa.query.suggest import did_you_mean
from medusa.units import Duration, duration_us

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["CorrectedRows", "FollowedTable"]

PENDING_ROWS = 1 << 16
"""So many rows beyond those of the table wait to be put into it. Too few: it is made anew often; too many:
memory."""


@dataclass(frozen=True, slots=True)
class _Guess:
    """Tentative rows, and the times by which they are void; None: the stream has no times."""

    batch: pa.RecordBatch
    times: pa.Array | None


class CorrectedRows:
    """The rows of a stream by key: of the stable ones the last, over them tentative ones that aren't void.

    A tentative row is void once the stream promises more than its time, or has another fork or none.

    Args:
        schema: of the rows.
        key: names of columns, at least one.

    Raises:
        LinkError: no such column, or one whose type is no key.
    """

    def __init__(self, schema: pa.Schema, key: Sequence[str]) -> None:
        self._schema = schema
        self._key = _checked(schema, key)
        self._rows = schema.empty_table()
        """Of the stable rows the last of each key, in the order in which they came."""
        self._pending: list[pa.RecordBatch] = []
        self._pending_rows = 0
        self._guesses: list[_Guess] = []
        self._guess_rows = self._kept_rows = 0
        """Of those, and how many of them were left when rows that can't show again were last thrown away."""
        self._fork = 0
        self._boundary_us: int = START_US
        self._shown: tuple[pa.Table, int] | None = None

    def stable(self, train: Train) -> None:
        """Rows that count."""
        self._shown = None
        self._pending.append(train.batch)
        self._pending_rows += len(train)
        if self._pending_rows > self._rows.num_rows + PENDING_ROWS:
            self._settle()

    def tentative(self, train: Train, fork: int) -> None:
        """Rows that may be wrong; of another fork than the one that there is they are void already."""
        guess = self._valid(_Guess(train.batch, train.times)) if fork and fork == self._fork else None
        if guess is None:
            return
        self._shown = None
        self._guesses.append(guess)
        self._guess_rows += guess.batch.num_rows
        if self._guess_rows > 2 * self._kept_rows + PENDING_ROWS:
            self._thin()

    def promised(self, boundary_us: int) -> None:
        """No later row that counts has a time below this."""
        if boundary_us <= self._boundary_us:
            return
        self._boundary_us = boundary_us
        if self._guesses:
            self._shown = None
            self._guesses = [kept for each in self._guesses if (kept := self._valid(each)) is not None]
            self._guess_rows = sum(each.batch.num_rows for each in self._guesses)

    def turned(self, fork: int) -> None:
        """Tentative rows come from this fork now; 0: from none."""
        if fork != self._fork:
            self._fork, self._shown = fork, None
            self._guesses.clear()
            self._guess_rows = self._kept_rows = 0

    def arrow(self) -> pa.Table:
        """One row per key, in the order in which those rows came, tentative ones last."""
        return self._show()[0]

    @property
    def tentative_rows(self) -> int:
        """How many of the rows of the table are tentative."""
        return self._show()[1]

    def _show(self) -> tuple[pa.Table, int]:
        if self._shown is None:
            self._settle()
            guesses = pa.Table.from_batches([each.batch for each in self._guesses], self._schema)
            table, places = _last_of_each(pa.concat_tables([self._rows, guesses]), self._key)
            self._shown = table, int(np.count_nonzero(places >= self._rows.num_rows))
        return self._shown

    def _settle(self) -> None:
        if self._pending:
            rows = pa.Table.from_batches(self._pending, self._schema)
            self._pending, self._pending_rows = [], 0
            self._rows, _ = _last_of_each(pa.concat_tables([self._rows, rows]), self._key)

    def _thin(self) -> None:
        """Throw away tentative rows over which others lie that hold for as long."""
        rows = pa.Table.from_batches([each.batch for each in self._guesses], self._schema)
        times = None
        if self._guesses[0].times is not None:
            times = pa.concat_arrays([each.times for each in self._guesses])
        places = _shown_once(rows, self._key, times)
        batch = rows.take(places).combine_chunks().to_batches()[0]
        self._guesses = [_Guess(batch, None if times is None else times.take(places))]
        self._guess_rows = self._kept_rows = len(places)

    def _valid(self, guess: _Guess) -> _Guess | None:
        """What of it isn't void by what was promised; None: nothing."""
        if guess.times is None:
            return guess
        import pyarrow.compute as pc  # Slow to load, and few readers need it.

        kept = pc.greater_equal(guess.times.cast(pa.int64()), self._boundary_us)
        count = pc.sum(kept).as_py() or 0
        if count == len(kept):
            return guess
        return _Guess(guess.batch.filter(kept), guess.times.filter(kept)) if count else None


def _checked(schema: pa.Schema, key: Sequence[str]) -> list[str]:
    """The columns of a key, each once."""
    names = [key] if isinstance(key, str) else list(key)
    for name in names:
        if name not in schema.names:
            hint = did_you_mean(str(name), schema.names)
            raise LinkError(f"table: no column {name!r}", hint=hint, code="link.argument")
    if not names or len(set(names)) < len(names):
        text = f"table: key is {key!r}"
        raise LinkError(text, hint="one column or several, none twice", code="link.argument")
    try:
        _last_of_each(schema.empty_table(), names)
    except pa.ArrowNotImplementedError:
        types = ", ".join(str(schema.field(name).type) for name in names)
        raise LinkError(f"table: no key can be of type {types}", code="link.argument") from None
    return names


def _last_of_each(table: pa.Table, key: Sequence[str]) -> tuple[pa.Table, NDArray[np.int64]]:
    """The last row of each key, in the order in which they stand, and where each stood."""
    columns = [f"k{number}" for number in range(len(key))]
    numbers = pa.array(np.arange(table.num_rows))
    keys = pa.Table.from_arrays([*(table[name] for name in key), numbers], names=[*columns, "row"])
    last = keys.group_by(columns, use_threads=False).aggregate([("row", "max")])["row_max"]
    places = np.sort(last.to_numpy())
    if len(places) == table.num_rows:
        return table, places
    return table.take(pa.array(places)), places


def _shown_once(table: pa.Table, key: Sequence[str], times: pa.Array | None) -> pa.Array:
    """Where the rows stand that show as long as the rows after them with their key hold, or longer."""
    if times is None:
        return pa.array(_last_of_each(table, key)[1])
    columns = [f"k{number}" for number in range(len(key))]
    numbers = pa.array(np.arange(table.num_rows))
    keys = pa.Table.from_arrays([*(table[name] for name in key), numbers], names=[*columns, "row"])
    lists = keys.group_by(columns, use_threads=False).aggregate([("row", "list")])["row_list"]
    # All rows of a key beside each other, the last one first: a row shows if its time is beyond all before.
    lists = lists.combine_chunks()
    rows = lists.flatten().to_numpy()[::-1]
    groups = np.repeat(np.arange(len(lists)), lists.value_lengths().to_numpy()[::-1])
    _, ranks = np.unique(times.cast(pa.int64()).to_numpy()[rows], return_inverse=True)
    heights = groups * (len(ranks) + 1) + ranks
    beyond = np.concatenate(([True], heights[1:] > np.maximum.accumulate(heights)[:-1]))
    return pa.array(np.sort(rows[beyond]))


class FollowedTable:
    """A stream as a table that is kept corrected; ``Subscription.table(key=...)`` makes it. One thread uses
    it, and nobody reads the subscription beside it.

    Each look first takes in what has come. While a failure lasts, a tentative row stays in memory until one
    with its key and a time that isn't lower lies over it.
    """

    def __init__(
        self,
        rows: CorrectedRows,
        take_in: Callable[[], None],
        wait: Callable[[int | None], bool],
    ) -> None:
        self._rows = rows
        self._take_in = take_in
        self._wait = wait

    def arrow(self) -> pa.Table:
        """The table as it is now: of each key the last row, tentative rows over stable ones.

        Raises:
            LinkError: the node refuses the stream.
        """
        self._take_in()
        return self._rows.arrow()

    def pandas(self) -> Any:
        """The same as a DataFrame of pandas, which has to be installed.

        Raises:
            LinkError: pandas isn't installed (``link.pandas``), or can't be loaded; or as ``arrow``.
        """
        try:
            import pandas  # noqa: F401
        except ImportError as error:
            missing = isinstance(error, ModuleNotFoundError) and error.name == "pandas"
            text = "pandas is not installed" if missing else f"pandas can't be loaded: {error}"
            hint = "pip install pandas; arrow() gives the same table without it"
            raise LinkError(f"table: {text}", hint=hint, code="link.pandas") from error
        return self.arrow().to_pandas()

    @property
    def tentative_rows(self) -> int:
        """How many rows of the table are tentative.

        Raises:
            LinkError: as ``arrow``.
        """
        self._take_in()
        return self._rows.tentative_rows

    def wait(self, timeout: Duration | None = None) -> bool:
        """Wait until something has come that may change it, and take it in; False: the stream has ended.

        Args:
            timeout: for how long at most; None: as the subscription has it.

        Raises:
            LinkError: nothing came in time (``link.timeout``), or as ``arrow``.
        """
        wait_us = None if timeout is None else duration_us(timeout, what="wait: timeout", error=LinkError)
        return self._wait(wait_us)
