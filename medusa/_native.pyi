"""Types of the native module. Every object is used by one thread at a time; long calls release the GIL.
A second thread inside the same ``Window`` or ``Keys`` gets a ``RuntimeError`` and changes nothing.

*Rows* below means any object with the Arrow PyCapsule interface for a struct array (a
``pyarrow.RecordBatch``). Arrays may be sliced (offset not 0). Nothing of the rows is kept after the
call returns, unless a method says so. Results are ``Batch``es, imported without a copy by
``pyarrow.record_batch(batch)``.

Native types are the Arrow format strings ``l`` int64, ``L`` uint64, ``g`` float64, ``u`` utf8,
``z`` binary, ``b`` bool: the engine widens everything else to one of these before, and narrows after.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from medusa.ports import Lock

T = TypeVar("T")

AGGREGATES: tuple[str, ...]
"""The names of native/aggregates/kinds.h."""

def abi_version() -> int: ...
def cpu_kernels() -> str:
    """Which kernels were chosen at run time: ``baseline`` or ``avx2``."""

def structs_checked(data: Any, *, rows: bool = False) -> tuple[Any, Any]:
    """The capsules (``__arrow_c_array__``) of a column or, with ``rows``, of rows, whose structs can be.

    Nothing follows their pointers before: lengths, offsets, counts, children, buffers that are missing.
    How long buffers are can't be seen: a column's length is believed; columns of rows are as long as they.
    ValueError: says where.
    """

def stream_checked(source: Any, *, rows: bool) -> Any:
    """Read a stream to its end: a capsule of the same arrays, whose structs can be, to be read once.

    Args:
        source: the capsule of a stream (``__arrow_c_stream__``).
        rows: as of ``structs_checked``.

    Raises:
        ValueError: a schema or an array that can't be; says where.
        OSError: the stream failed, for the reason that it gives.
    """

def invalid_in(batch: Any) -> tuple[int, int, str] | None:
    """Look at all of a ``pyarrow.RecordBatch``: structs, sizes, and each column as ``invalid`` does.

    Returns:
        The number of the first column that is invalid, and what ``invalid`` says of it; None: all are valid.

    Raises:
        ValueError: structs or sizes that can't be; says where.
    """

def invalid(column: Any) -> tuple[int, str] | None:
    """Look at the values of a column, whose structs and the sizes of whose buffers are right.

    Returns:
        The first row that is invalid, and what is: ``offsets`` of text or binary (negative, decreasing, or
        without buffers), ``utf8``, ``decimal`` (128 bits: more digits than its type has), or ``nulls``
        (another count of them than was said; of any type). Nulls may hold anything. None: nothing is, as far
        as this looks: not at dictionaries, views and nested types.
    """

class Batch:
    """A struct array made by native code; handed over once (``__arrow_c_array__``)."""

    def __arrow_c_array__(self, requested_schema: Any = None) -> tuple[Any, Any]: ...
    @property
    def num_rows(self) -> int: ...
    @property
    def num_columns(self) -> int: ...
    def __len__(self) -> int: ...

class Split:
    """Which rows of a batch belong to which of some parts, by key: equal keys always go together."""

    def __init__(self, *, keys: Sequence[str], parts: int) -> None:
        """Args:
        keys: native types, at least one.
        parts: 1 to 64.
        """

    def begin(self, rows: Any, first_key: int = 1) -> int:
        """Look at a batch: a time or int64 without nulls first, the keys from column ``first_key`` on.

        Returns:
            Into how many chunks ``run`` may cut it. The batch is held until ``end`` or the next one.
        """

    def run(self, start: int, stop: int) -> None:
        """Split the chunks from ``start`` to ``stop``; several threads may, each other chunks."""

    def take(self, part: int, first: int = 0) -> tuple[Batch, Batch]:
        """The rows of a part, and their numbers (int64), where the first row of the batch is ``first``."""

    def end(self) -> None:
        """Let the batch go."""

class Merge:
    """Batches whose rows are in order of some int64 or time columns, as one sequence in order."""

    def __init__(self, batches: Sequence[Any], keys: Sequence[tuple[int, bool]]) -> None:
        """Args:
        batches: 1 to 64 of the same columns; those of native code are looked at and not handed over.
        keys: 1 to 4 of (column, whether -1 is the last). Among equal ones the earlier batch is first.
        """

    def cut(self, batch: int, row: int) -> list[int]:
        """Of each batch: how many rows stand before that row in the merged order."""

    def rows(self, start: Sequence[int], stop: Sequence[int], columns: Sequence[int]) -> Batch:
        """The rows ``start[b]`` to ``stop[b]`` of all batches, merged; some columns of them. Any thread."""

class Window:
    """Groups and accumulators of a tumbling or sliding window, in panes."""

    def __init__(
        self,
        *,
        size_us: int,
        advance_us: int,
        keys: Sequence[str],
        inputs: Sequence[str],
        aggregates: Sequence[tuple[str, int] | tuple[str, int, float]],
        stage: str = "whole",
        positions: bool = False,
        seed: int = 0,
    ) -> None:
        """Make an empty window box.

        Args:
            keys: native types of the key columns (may be empty).
            inputs: native types of the argument columns.
            aggregates: (function, index into ``inputs`` or -1 for ``count`` of rows, parameter); functions
                are those of ``AGGREGATES``. The parameter of a quantile is the fraction. A sum or avg of
                ``z`` is of decimals: 16 bytes big-endian with the sign bit flipped (parameter of avg: what
                to divide by, 10^scale).
            stage: whole, partial or combine.
            positions: batches, also those of ``failed``, end with a column ``first`` (int64): the position
                of the group's first row. Those of ``early`` have in window_start the start of the pane in
                which the group appeared, and come by (window_end, window_start, first).
            seed: keys the hash table; never influences order or output.
        """

    def spread(self, rows: Any, times: Any, slots: int) -> int:
        """Begin an ``add`` by several threads, each of which then calls ``spread_map`` with a place of its
        own in [0, slots); when all have, each ``spread_fill``; at last and in any case one
        ``spread_end``. Nothing else may be called meanwhile. Without all of ``spread_fill`` nothing is taken.

        Returns:
            The rows of the fullest pane, which one thread adds.

        Raises:
            As ``add``.
        """

    @property
    def spreading(self) -> int:
        """The slots, between ``spread`` and ``spread_end``; else 0."""

    def spread_map(self, place: int) -> None:
        """Groups and room of panes, until none is left."""

    def spread_fill(self, place: int) -> None:
        """The values of panes, until none is left."""

    def spread_end(self) -> None:
        """Raises: MemoryError of a ``spread_map``, whichever came first; then no row was taken."""

    def add_part(self, split: Split, part: int) -> None:
        """``add`` of the rows of one part of a split that has run over its whole batch."""

    def add_at(self, rows: Any, positions: Any, taken: int) -> None:
        """``add`` of rows that were kept aside while others came.

        Args:
            positions: of each row (int64), ascending, none below the rows taken so far.
            taken: rows that have been taken with these.
        """

    def read_from(self, positions: Sequence[int]) -> None:
        """Where the columns of ``add(rows, times)`` stand in a batch; -1: its times."""

    def add(self, rows: Any, times: Any = None) -> None:
        """Take rows.

        ``whole`` and ``partial``: columns time (int64 or timestamp[us]; no nulls), keys, inputs,
        in this order (names don't matter). ``combine``: window_start, window_end (int64 or
        timestamp[us]), keys, state columns as ``partial`` emits them.
        No row may be in a window closed already: the caller has dropped late rows.

        Raises:
            ValueError: columns don't have the declared types, or a time is below the boundary.
            MemoryError: nothing of the rows was taken.
        """

    def close(self, boundary_us: int) -> list[Batch]:
        """Close and emit all windows with ``window_end <= boundary_us``, in order.

        Columns: window_start, window_end (timestamp[us, UTC]), keys, then one column per aggregate
        (``partial``: its state columns). Rows by (window_end, window_start, first appearance of
        the key in that window); ``combine``: by key, null first, then value order. Empty windows
        are not emitted. An integer ``sum`` that doesn't fit int64 fails its group: see ``failed``.
        Few large batches rather than many small ones: windows of fewer than some thousand groups
        share a batch, larger ones come without a copy of the accumulators.
        """

    def early(self) -> list[Batch]:
        """What open windows would give if they closed now, for the groups that got rows since the last call.

        Nothing of the windows changes. Columns as of ``close``; rows by (window_end, first appearance
        of the key in the window's panes by time). Only for stage ``whole`` (else ValueError).
        """

    def failed(self) -> Batch | None:
        """Groups that failed since the last call: window_start, window_end, keys, aggregate (int32)."""

    def next_end_us(self) -> int:
        """The earliest window_end that is still to be closed, given the last boundary; -2**63 before
        the first boundary, 2**63 - 1 when no window can follow."""

    def oldest_open_us(self) -> int | None:
        """window_start of the oldest window that holds rows; None when there is none."""

    def groups_open(self) -> int:
        """Groups of all panes: no window that closes has more."""

    def rows_open(self) -> int:
        """Rows taken that stand in panes an open window needs (``combine``: groups)."""

    def nbytes(self) -> int:
        """Memory held, in bytes."""

    def trim(self) -> None:
        """Give back memory that no open window needs; results stay the same."""

    def state(self) -> Batch:
        """Everything held: pane_start, pane_end (int64), first (int64: position of the group's first
        row), rows (int64), keys, state columns; panes ascending, groups in order of first appearance.
        The object is unchanged. Take what ``close`` and ``failed`` give first: it is not in here."""

    def position(self) -> tuple[int, int]:
        """(boundary of the last ``close``, rows taken so far): goes beside ``state``."""

    def load(self, state: Any, boundary_us: int, taken: int) -> None:
        """Take back what ``state`` and ``position`` gave; only on an empty object.

        Raises:
            ValueError: columns, order or contents can't have come from ``state``; nothing changed.
        """

class Program:
    """Expressions and filters over batches in one pass; ``native/program/program.h`` has the rules."""

    def __init__(
        self,
        *,
        columns: Sequence[str],
        steps: Sequence[tuple[int, int, int, int, int]],
        constants: Sequence[tuple[str, int | float]],
        outputs: Sequence[tuple[int, str, str]],
        positions: Sequence[int] | None = None,
        baseline: bool = False,
    ) -> None:
        """Check a program.

        Args:
            columns: ``l``, ``i``, ``g`` or ``b`` for each column of a batch.
            steps: (operation, target, a, b, c), numbers of registers.
            constants: (``l``, ``g`` or ``b``, value).
            outputs: (register, Arrow format, name).
            positions: of the columns in a batch, -1 for its times, -2 for its late marks; None: a batch has
                just the columns.
            baseline: without AVX2 even where the machine has it.

        Raises:
            ValueError: a program that can't be.
        """

    @property
    def nbytes(self) -> int:
        """Bytes that it holds while it doesn't run."""

    def run(self, rows: Any, times: Any = None, late: Any = None) -> tuple[Batch, list[int]] | None:
        """The outputs as a batch, and the rows behind each filter; None: a row failed, nothing was made.

        Gives up the GIL on large batches.
        """

    def into(
        self,
        window: Window,
        rows: Any,
        times: Any = None,
        late: Any = None,
        extent: tuple[int, int] | None = None,
    ) -> list[int] | None:
        """Add the outputs (times as they came, keys, inputs) to a window; the rows behind each filter.

        None: a row failed; then, and when it raises, the window is as it was. Gives up the GIL on large
        batches.

        Args:
            extent: the least and largest of ``times``, where they are known.

        Raises:
            ValueError: outputs that the window doesn't take, a time below its boundary or out of range.
        """

class ItemsCopy:
    """Rows of numbered items as they were when this was made; given up when it is forgotten."""

    @property
    def left(self) -> int:
        """Rows that are still to be copied."""

    @property
    def base_rows(self) -> int:
        """Rows of the copy that this one is made of; 0: of none."""

    @property
    def partial(self) -> bool:
        """Only what changed is copied: there are ``runs``."""

    def runs(self) -> Any:
        """As ``Snapshot.runs``."""

    def next(self, rows: int) -> Batch:
        """So many rows more, or a few above; gives up the GIL. MemoryError: call again, or it has failed."""

class Snapshot:
    """The state of a window as it was when this was made; given up when it is forgotten."""

    @property
    def left(self) -> int:
        """Groups that are still to be copied."""

    @property
    def base_rows(self) -> int:
        """Rows of the copy that this one is made of; 0: of none."""

    @property
    def partial(self) -> bool:
        """Only what changed is copied: there are ``runs``."""

    def copy(self, groups: int) -> None:
        """Copy so many more, or a few above; gives up the GIL. MemoryError: nothing is lost, call again."""

    def runs(self) -> Any:
        """How ``state`` is made of the rows of the copy ``base`` and of those of this one: int64 pairs
        (start, length), one run after the other, of rows of [ base | this ]. In any thread.

        Returns:
            None: this copy is all of it.
        """

    def finish(self) -> Batch:
        """What ``state`` would have given, or what changed since ``base``; once, when nothing is left."""

def snapshot_of(window: Window, number: int = 0, base: int = 0) -> Snapshot | None:
    """Begin a copy of ``state`` as it is now, to be made in pieces while rows come and windows close; without
    slots that have left.

    Args:
        number: by which later copies may have this one as their ``base``: larger than all before; 0: none.
        base: only groups that changed since that copy, where the window remembers it (the last few, and every
            ``base`` that was asked for last) and at most half of its groups changed. 0: all groups.

    Returns:
        None: this window's state isn't copied in pieces (no keys, stage combine, distinct values, text or
        sketches among the aggregates).

    Raises:
        ValueError: one is under way, that is, neither finished nor forgotten.
    """

class Store(Window):
    """A ``Window`` of one int64 key (a slot) and one pane, whose groups leave one by one; never closed."""

    def pick(self, slots: Any, *, states: bool = False) -> list[Batch]:
        """window_start, window_end, slot and the aggregates (``states``: their state columns) of these slots
        (int64 array), in their order. Groups that fail are left out: see ``failed``. They all stay.

        Raises:
            ValueError: a slot that no row has.
        """

    def leave(self, slots: Any) -> None:
        """These slots (int64 array) have left: they stay, but are in no copy that ``snapshot_of`` begins.

        Raises:
            ValueError: a slot that no row has; none has left.
        """

    def living(self) -> int:
        """Slots that haven't left."""

class RunningStore(Store):
    """A ``Store`` that tells the aggregates of a slot after each row."""

    def run(self, rows: Any) -> list[Batch]:
        """Take rows (time, slot, inputs) in order. One row for each: window_start is the number of the row,
        then window_end, the slot, the aggregates of the slot with this row. Rows that fail are left out."""

class Sessions:
    """Which session each row is in: rows of a key less than the gap apart belong together."""

    def __init__(self, gap_us: int) -> None: ...
    def assign(self, ids: Any, times: Any) -> Any:
        """The slot (int64 array) of each row, of key ``ids`` (int32) at ``times`` (int64 or timestamp)."""

    def close(self, boundary_us: int, most: int = ...) -> Batch:
        """End the sessions with last + gap <= boundary, by their ends: ``most`` (1 or more; default: all) and
        those that end as the last of these. One row per slot: key, first, last, position, slot,
        session (int64; slots of one session stand together, in order of time)."""

    def rows(self) -> Batch:
        """The same of all open sessions, which stay open."""

    def copy(self, number: int = 0, base: int = 0) -> ItemsCopy:
        """Begin a copy of these rows, by session, to be made in pieces while sessions change. Its keys have
        the numbers that they have now.

        Args:
            number, base: as ``snapshot_of``.
        """

    def load(self, rows: Any, *, keys: int, next_slot: int, taken: int) -> None:
        """Take back what ``rows`` and ``position`` gave; ValueError says which row can't be."""

    def renumber(self, ids: Any) -> None:
        """The key ``ids[i]`` becomes i; ``ids``: all keys that have a session, ascending."""

    def next_end_us(self) -> int:
        """Earliest end of an open session; 2**63 - 1: none is open."""

    def __len__(self) -> int: ...
    def parts(self) -> int:
        """Slots in use."""

    def position(self) -> tuple[int, int]:
        """(next slot, rows taken)."""

    def nbytes(self) -> int: ...

class Slots:
    """Which rows by slot there are, which changed, and which have to be kept for a copy under way. The rows
    themselves are held by who owns this; none is there at first.

    ``touch``, ``open`` and ``close`` are called before rows change, come (or change), go: int64 arrays of
    slots. Each gives the slots (an int64 array) of those that must be kept now, as they are; None: none.
    ``first``: how many were kept for this copy so far.
    """

    @property
    def copying(self) -> bool:
        """A copy is under way."""

    def touch(self, slots: Any, first: int) -> Batch | None: ...
    def open(self, slots: Any, first: int) -> Batch | None: ...
    def close(self, slots: Any, first: int) -> Batch | None: ...
    def touch_one(self, slot: int, first: int) -> bool:
        """The same of one slot: whether it must be kept."""

    def open_one(self, slot: int, first: int) -> bool: ...
    def close_one(self, slot: int, first: int) -> bool: ...
    def keep_all(self, first: int) -> Batch | None:
        """All that a copy under way still needs, which then goes on without this; None: there is no copy."""

    def clear(self) -> None:
        """No row is there any more, and no capture is known; after ``keep_all``."""

    def copy(self, number: int = 0, base: int = 0) -> ItemsCopy:
        """Columns ``slot`` and ``kept``: the number of a row among those kept for this copy; -1: it stands in
        its slot. Numbers as of ``Sessions.copy``. RuntimeError: one is under way."""

    def nbytes(self) -> int: ...

class Spans:
    """Which pane of its key each row is in, by row count or by a value that never decreases.

    Args:
        kind: ``rows``, or the native type of the values: ``l``, ``L`` or ``g``.
    """

    def __init__(self, kind: str, size: float, advance: float) -> None: ...
    def assign(self, ids: Any, values: Any = None) -> Any:
        """The slot of each row; -1: below an earlier value of its key; -2: null, NaN or out of range."""

    def finish(self) -> None:
        """Close every window that holds rows."""

    def closed(self) -> Batch:
        """The windows closed since, one row per pane: window, key, row, position, slot, number."""

    def copy_keys(self, number: int = 0, base: int = 0) -> ItemsCopy:
        """Begin a copy of the keys, to be made in pieces while rows come: key, last, next_window.

        Args:
            number, base: as ``snapshot_of``.
        """

    def copy_panes(self, number: int = 0, base: int = 0) -> ItemsCopy:
        """The same of the panes, in no order: key, low, high, slot, position."""

    def panes(self) -> Batch:
        """These panes, key by key, those of a key the oldest first."""

    def left(self) -> Any:
        """The slots (int64 array) of panes that no window needs any more, since this was asked; None: there
        was no memory to note them all."""

    def load(self, keys: Any, panes: Any, *, next_slot: int, taken: int) -> None:
        """Take back last and next_window of keys 0, 1, 2 ..., what ``panes`` gave, and ``position``;
        ValueError says what can't be."""

    def __len__(self) -> int:
        """Keys."""

    def parts(self) -> int: ...
    def position(self) -> tuple[int, int]: ...
    def nbytes(self) -> int: ...

class Expiry:
    """The slot of each row's key: a new one more than the limit after the key's latest row."""

    def __init__(self, limit_us: int) -> None: ...
    def assign(self, ids: Any, times: Any) -> Any: ...
    def keys(self) -> tuple[Any, Any]:
        """Latest time and slot of each key (int64 arrays)."""

    def left(self) -> Any:
        """Slots that no row will have any more, since their keys have new ones, each told once (an int64
        array); None: none. Rows that ``assign`` was given may have them."""

    def copy(self, number: int = 0, base: int = 0) -> ItemsCopy:
        """Begin a copy of the keys, to be made in pieces while rows come: key, latest, slot.

        Args:
            number, base: as ``snapshot_of``.
        """

    def load(self, latest: Any, slots: Any, *, next_slot: int) -> None: ...
    def next_slot(self) -> int: ...
    def nbytes(self) -> int: ...
    def __len__(self) -> int:
        """Keys that had a row."""

def keys_secret(word: int) -> int:
    """A word that goes into the hash of all keyed tables made from now on; the one before. Random in each
    process. It never influences order or output: tests set it to see that."""

class Keys:
    """Key columns to dense ids 0, 1, 2 ... in order of first appearance."""

    def __init__(self, keys: Sequence[str], *, seed: int = 0) -> None: ...
    def map(self, rows: Any, *, insert: bool = True) -> Any:
        """An array (Arrow PyCapsule, int32) of one id per row; -1 for an unknown key when not inserting."""

    def __len__(self) -> int: ...
    def nbytes(self) -> int: ...
    def keys(self) -> Batch:
        """The keys in order of their ids."""

class Join:
    """Rows of two sides by key and time; results as numbers of rows. One per key partition may run in a
    thread of its own: results of disjoint keys, each sorted by (release, left, right), merge by these."""

    def __init__(
        self,
        *,
        keys: Sequence[str],
        how: str,
        within_us: int,
        judged: bool = False,
        keys_spare: int = 65536,
        seed: int = 0,
    ) -> None:
        """Make an empty join.

        Args:
            keys: native types of the key columns, at least one.
            how: inner, left, right, full, semi, anti; asof, asof_left.
            within_us: how far apart; -1 for an as-of join that takes any age.
            judged: ``judge`` decides which pairs count.
            keys_spare: keys remembered beyond twice the rows held.
            seed: keys the hash table; never influences results.
        """

    def add(self, side: int, rows: Any, first: int, *, numbers: Any = None) -> None:
        """Take rows of side 0 (left) or 1: columns time (int64 or timestamp[us], no nulls), keys, and
        ``matched`` (bool) where a state is loaded. Row i has number ``first + i``, or ``numbers[i]``
        (int64); numbers of a side ascend.

        Raises:
            ValueError: other columns, or a time below the boundary; nothing was taken.
        """

    def advance(self, boundary_us: int) -> None:
        """No row below the boundary comes any more. After it: ``step`` until it gives False."""

    def step(self, pairs_max: int) -> bool:
        """Go on until there are that many pairs, at the end of a time; whether more is to be done.
        After each step ``pairs`` and ``judge`` (if judged), then ``results``."""

    def pairs(self) -> Batch:
        """Of a judged join, the pairs of this step: left, right (numbers of rows)."""

    def judge(self, mask: Any) -> None:
        """Which of them count: a bool array; null is false."""

    def results(self) -> Batch | None:
        """Results of this step by (release, left, right), none last: release (int64), time
        (timestamp[us, UTC]), left, right (-1: none); None where there are none."""

    def rows(self, side: int) -> Batch:
        """The rows held, by number: row, time (timestamp[us, UTC]), matched."""

    def track(self, side: int) -> None:
        """Rows will be copied: what the first ``copy`` would find by looking at all of them is noted."""

    def copy(self, side: int, number: int = 0, base: int = 0) -> ItemsCopy:
        """Begin a copy of these rows, to be made in pieces while the join goes on: row, time (us), matched
        (0 or 1), all int64.

        Args:
            number, base: as ``snapshot_of``.

        Raises:
            ValueError: pairs of one time are still to come.
        """

    def renumber(self, side: int, numbers: Any = None) -> None:
        """Number the rows held anew, in the order of ``rows``: 0, 1, 2 ... or by these, which ascend."""

    def span(self, side: int) -> int:
        """How many numbers there are from the first row held to the last one taken, once rows were copied:
        what is kept to know them grows with it. Before, 0."""

    def resume(self, boundary_us: int) -> None:
        """After rows of a state were added to a fresh join: go on from that boundary.

        Raises:
            ValueError: a row that can't have been held then.
        """

    def held(self, side: int) -> int:
        """Rows held, waiting ones included."""

    def waiting(self, side: int) -> int:
        """Rows at or above the boundary."""

    def nbytes(self) -> int: ...

class Chunks:
    """Batches of one schema whose rows are known by number; they are kept, not copied."""

    def __len__(self) -> int: ...
    def add(self, rows: Any, first: int) -> None:
        """Keep a batch whose rows have the numbers first, first + 1, ...; numbers ascend.

        Raises:
            ValueError: another number of columns, or a type that can't be gathered.
        """

    def keep(self, start: int, stop: int) -> None:
        """Let go of all batches but ``[start, stop)``."""

    def take(self, numbers: Any, columns: Sequence[int]) -> Batch:
        """Some columns of the rows with these numbers (int64 array; -1: a row of nulls)."""

class Exported:
    """A batch that was asked for its capsules once. Takes its place in native calls, which then needn't ask:
    on few rows that takes longer than what they do."""

    @property
    def num_rows(self) -> int: ...

class Times(Exported):
    """One int64 or timestamp[us] array without nulls that was looked at once. Holds the array, and takes its
    place in native calls."""

    rows: Exported | None
    """The batch whose column they are, where ``Intake`` looked."""

    def __init__(self, array: Any) -> None: ...
    def __len__(self) -> int: ...
    def part(self, start: int, rows: int) -> Times:
        """Some of them, as ``array.slice`` gives them; looked at anew where cuts don't fall on blocks."""

    @property
    def array(self) -> Any: ...
    @property
    def extent(self) -> tuple[int, int] | None:
        """(least, largest) in us; None of no rows."""

class Intake:
    """Tells batches of a schema and looks at their times, without making Python objects of their columns.

    Args:
        schema: of Arrow (``__arrow_c_schema__``).
        position: of the column that holds the times, in microseconds.
        make: gives the times of a batch as an array, when somebody wants that.
    """

    def __init__(self, schema: Any, position: int, make: Callable[[Any], Any]) -> None: ...
    def rows(self, batch: Any) -> Exported | None:
        """The batch, if it has this schema for certain, and its structs can be (ValueError)."""

    def invalid(self, rows: Exported) -> tuple[int, int, str] | None:
        """The first column with an invalid value, the row of its first one, and what it is, as ``invalid``
        says; None: all are valid."""

    def times(self, rows: Exported, batch: Any) -> Times | None:
        """The times of what ``rows`` gave for ``batch``; None: one is null."""

class Lateness:
    """Judges lateness row by row, so that batch cuts never matter."""

    def __init__(
        self, slack_us: int, *, max_us: int | None = None, boundary_us: int | None = None
    ) -> None: ...
    def judge(self, times: Any) -> tuple[int, int, Any]:
        """Judge ``Times``, or an array of them: (late rows, greatest lateness in us, mask or None).

        A row is late when its time is below (largest time of earlier rows) - slack, or below the
        explicit boundary. The mask is a bool array (Arrow PyCapsule), None where no row is late.
        """

    def promise(self, boundary_us: int) -> None:
        """Take an explicit boundary; it may not decrease (ValueError)."""

    @property
    def max_us(self) -> int | None:
        """Largest time seen; None before the first row."""

    @property
    def promised_us(self) -> int | None:
        """The last explicit boundary (``boundary_us`` of a new object); None before the first."""

    @property
    def boundary_us(self) -> int:
        """The boundary that follows: max(largest time - slack, explicit boundary), and at least
        ``elements.START_US``."""

class PartLateness:
    """Judges lateness row by row for each partition of a source apart, numbered as they come."""

    def __init__(self, slack_us: int, *, boundary_us: int | None = None) -> None: ...
    def __len__(self) -> int:
        """Partitions seen or appended."""

    def append(self, max_us: int | None, floor_us: int | None) -> None:
        """One more partition: None and None for one that is listed, or what ``part`` said."""

    def judge(self, times: Any, ids: Any) -> tuple[int, int, Any]:
        """As ``Lateness.judge``; ids (int32): of the partition of each row, a new one being the next number.

        A new partition starts at the boundary of that moment.
        """

    def promise(self, boundary_us: int) -> None:
        """Take an explicit boundary for all partitions; it may not decrease (ValueError)."""

    def lift(self, part: int, floor_us: int) -> None:
        """Raise the limit of one partition to at least this."""

    def rest(self, active_us: Any, since_us: int) -> bool:
        """Lift partitions whose number in active_us (int64, one each) is at most since_us to the least limit
        of the others. True: there are no others.
        """

    def limit_us(self, part: int) -> int:
        """The limit of the next row of a partition; START_US when nothing is known."""

    def part(self, part: int) -> tuple[int | None, int | None]:
        """Largest time seen and floor of a partition; None: none."""

    def nbytes(self) -> int: ...
    @property
    def boundary_us(self) -> int:
        """The least limit of all partitions, or the explicit boundary without any; START_US: none."""

    @property
    def holder(self) -> int | None:
        """The partition that has it; None without any."""

class BoundedSort:
    """Which rows leave a bounded-pass sort, and when: of ``slack + 1`` rows of a group the smallest."""

    def __init__(self, slack: int) -> None: ...
    def add(self, keys: Any, groups: Any, position: int) -> Any:
        """Take rows, in order.

        Args:
            keys: int64 array to sort by; null is below every number.
            groups: int32 array without nulls, one a row; None: all rows are of one group.
            position: of the first row, above those of earlier calls.

        Returns:
            An int64 array (Arrow PyCapsule): positions of the rows that leave, in order; ties by position.

        Raises:
            ValueError, MemoryError: nothing was taken.
        """

    def drain(self, most: int) -> Any:
        """At most so many rows leave: their positions, by (null first, key, position) over all groups.

        Nothing may be added before all have left.
        """

    def __len__(self) -> int:
        """Rows held."""

    def nbytes(self) -> int: ...

class Queue:
    """A bounded queue of train ids with a cursor per reader."""

    def __init__(self, *, bytes_max: int, trains_max: int = 1 << 20) -> None: ...
    def push(self, train_id: int, nbytes: int) -> bool:
        """Append; False when it would exceed a bound, and then nothing was stored. A single train
        larger than the bound enters an empty queue."""

    def reader(self) -> int:
        """A new reader, at the oldest train held; its number."""

    def next(self, reader: int) -> int | None:
        """The reader's next train id, or None; moves the reader on."""

    def close(self, reader: int) -> None: ...
    def trim(self) -> list[int]:
        """Drop and return the ids that every reader has passed (all of them without readers)."""

    @property
    def nbytes(self) -> int: ...
    def __len__(self) -> int: ...

def filter_rows(rows: Any, mask: Any) -> Batch:
    """The rows of a batch for which ``mask`` is true (false and null go), as a new batch, in order.

    Args:
        rows: a struct array (Arrow PyCapsule) of bools, numbers, times, decimal128, utf8 or binary.
        mask: a bool array (Arrow PyCapsule) of as many rows.

    Raises:
        ValueError: a column of another type, or a mask that doesn't fit.
        MemoryError: nothing was made.
    """

def pick_keys(keys: Keys, ids: Any) -> Batch:
    """The keys of some ids (int64 array), in their order."""

def keys_nbytes(keys: Keys) -> int:
    """Memory held, in bytes."""

def hash_partition(rows: Any) -> Any:
    """One uint64 per row (Arrow PyCapsule): fixed for all nodes, versions and Arrow layouts."""

class Digests:
    """128 bits for each row of a table, under a seed: what tells which rows changed since another.

    Args:
        rows: a struct array (Arrow PyCapsule), lists and structs too.
        seed, other: 64 bits each, kept secret.

    Raises:
        ValueError: a column of a type that has no digest (dictionary, view, union, map).
        MemoryError: nothing was made.
    """

    def __init__(self, rows: Any, seed: int, other: int) -> None: ...
    def __len__(self) -> int: ...
    def runs(self, before: Digests) -> Any:
        """How this table is made of the rows of an earlier one, under the same seed, and fresh ones.

        Returns:
            int64 pairs (start, length), one run after the other, of rows of [ before | fresh rows ].
        """

def crc32c(data: Any, value: int = 0) -> int:
    """CRC-32C (Castagnoli) of a buffer; ``value``: of what came before it."""

def drop_parts(calls: tuple[int, int, int, int], socket: int, most: int) -> tuple[int, bool]:
    """Drop parts of a message of libzmq: ``medusa.engine.core.multipart`` says how."""

class SignalGate:
    """Defers signal handlers that are written in Python, for one thread, while it is held.

    Python runs handlers in the main thread, between any two steps of it; one that raises, as that of SIGINT
    does, breaks off what is at work there. ``hold`` puts this object in the place of each handler, and it
    notes the signals that come; ``release`` puts the handlers back and calls them. Holds nest. In any other
    thread every method does nothing.
    """

    def __init__(self, signals: Sequence[int], thread: int, passes: Callable[[int, bool], bool]) -> None:
        """Args:
        signals: at most 16.
        thread: identifier of the main thread.
        passes: asked when a signal comes while this is held, with its number and whether one of the same
            number is deferred already; True: its handler is called at once.
        """

    @property
    def passed(self) -> bool:
        """Since the outermost hold a handler that was called at once has raised."""

    @property
    def held(self) -> bool:
        """This thread holds it."""

    @property
    def came(self) -> bool:
        """This thread holds it, and a signal came whose handler is deferred."""

    def hold(self) -> None:
        """Defer from now on. Raises what the handler of a signal raises that came just before; then nothing
        is held."""

    def release(self) -> None:
        """The last one: put handlers back and call those whose signals came. Raises their first error."""

    def check(self) -> None:
        """Call now the handlers of the signals that came, and hold on. Raises the first error of them."""

    def forked(self, thread: int) -> None:
        """In a child after a fork: nothing is held, and this thread is the main one."""

    def __enter__(self) -> None: ...
    def __exit__(self, kind: object, error: object, trace: object) -> None: ...
    def __call__(self, signum: int, frame: Any) -> None: ...

class Locked:
    """Calls with two locks held; whatever signals come, both are released."""

    def __init__(self, first: Lock, second: Lock) -> None:
        """Args:
        first: isn't waited for.
        second: is waited for; those who hold it do so briefly.
        """

    def __call__(self, work: Callable[..., T], *arguments: Any) -> T | None:
        """What ``work`` gives; None: somebody has the first lock, and ``work`` wasn't called.

        Raises what ``work`` raises, or the handler of a signal, before it, amid it or after it.
        """
