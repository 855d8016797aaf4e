"""Opening a history: it goes back to where the state is, and what a killed writer left behind that goes.

A history is synced before a checkpoint is written, so after a restore it reaches at least to the row at
which the state stands. What is beyond is cut off, torn or not: those rows come again with what is pushed
again. What is before was synced: if its bytes aren't right, that is damage. Where a whole end of it is
missing, opening is refused; else it is told when its rows are read, and takes no other rows with it.

All files are looked at before one is changed. An index of which one copy is damaged or gone is that of the
other copy, which is written in its place.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import pairwise

from medusa.elements import END_US, START_US, Train
from medusa.engine.history.history import History, Segment
from medusa.engine.history.records import RecordEntry, head, merged_index, read_entries, read_index_head
from medusa.errors import StateError

__all__ = ["SCHEMA_BYTES_MAX", "prepare_history", "read_history", "unreadable"]

SCHEMA_BYTES_MAX = 1 << 24


def prepare_history(history: History, next_seq: int, most_us: int) -> bool:
    """Take over the segments there are, for a stream that goes on with row ``next_seq``; whether there are.

    The files are changed by ``history.settle``.

    Args:
        most_us: the largest time of all rows before that.

    Raises:
        StateError: rows before ``next_seq`` are missing, the files are of other columns or of a later
            version, or can't be read.
    """
    names = history.port.names()
    segments = _segments(history, names, next_seq)
    while segments and not segments[-1].entries and segments[-1].first >= next_seq:
        segments.pop()  # begun, and nothing of it counts
    end = segments[-1].end if segments else next_seq
    if end < next_seq:
        raise StateError(
            f"{history.port.where(segments[-1].first)}: ends before row {end}, and the checkpoint stands at"
            f" row {next_seq}: rows between are missing",
            hint="put the file back; or give history= another folder: it begins at the checkpoint",
            code="state.history",
        )
    gone = names[len(segments) :]  # nothing but torn heads
    if segments and segments[0].first > next_seq:
        gone += [each.first for each in reversed(segments)]
        segments = []
    while segments and segments[-1].first >= next_seq:
        gone.append(segments.pop().first)
    kept = _shorten(history, segments, next_seq) if segments else None
    # A damaged one isn't cut: nothing is added to it, and its end is where the next one begins.
    cut = segments[-1] if segments and not segments[-1].is_damaged else None
    history.take_over(segments, next_seq, most_us)
    if kept is not None:  # the first rows of a record that the cut went through
        train, boundary_us, before_us = kept
        history.take_over(segments, train.first_seq, before_us)
        history.hold(train, boundary_us)
    history.settle_by(partial(_settle, history, gone, cut, most_us))
    return bool(names)


def _settle(history: History, gone: Sequence[int], cut: Segment | None, most_us: int) -> None:
    """Forget the rows that don't count, the last first: what is left has no hole at any moment."""
    port = history.port
    for first in gone:
        port.remove(first)
    for segment in history.segments:
        if not segment.is_damaged:  # else its bytes say more than we know
            port.rewrite_index(segment.first, _index_of(history, segment))
    if cut is not None:
        port.cut(cut.first, cut.rows_bytes, cut.index_bytes)
    history.sync()
    history.note_newest(most_us)


def _index_of(history: History, segment: Segment) -> bytes:
    return head(history.full_schema)[1] + b"".join(entry.encoded() for entry in segment.entries)


def read_history(history: History) -> None:
    """Take over the segments there are, for reading only: nothing is changed.

    Raises:
        StateError: they are of other columns or of a later version, can't be read, or nothing says what
            rows one of them has. Other damage is told when rows are read.
    """
    names = history.port.names()
    segments = [each for each in _segments(history, names, None) if each.entries]
    last = segments[-1].entries[-1] if segments else None
    most_us = int(START_US) if last is None else max(last.before_us, last.most_us)
    history.take_over(segments, last.end if last else 0, most_us)


def unreadable(history: History) -> list[tuple[str, int, int]]:
    """Rows that surely can't be read: the file, the number of the first and of the one behind the last.

    Only indexes and the lengths of files are looked at; what else is damaged is told when it is read.

    Raises:
        StateError: a file can't be read, though it is there.
    """
    made: list[tuple[str, int, int]] = []
    for segment in history.segments:
        index = history.port.where(segment.first, "index")
        made += [(index, each.first, each.end) for each in segment.entries if each.rows and each.sum is None]
        whole = [each for each in segment.entries if each.rows and each.sum is not None]
        if not whole or _reaches(history, segment.first, whole[-1]):
            continue
        first = next(
            (each.first for each in whole if not _reaches(history, segment.first, each)), segment.end
        )
        made.append((history.port.where(segment.first), first, segment.end))
    return made


def _reaches(history: History, first: int, entry: RecordEntry) -> bool:
    """Whether the rows of a segment go as far as the end of a record."""
    try:
        return len(memoryview(history.port.read(first, entry.start + entry.length - 1, 1))) > 0
    except StateError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return False
        raise


def _segments(history: History, names: Sequence[int], next_seq: int | None) -> list[Segment]:
    """What is known of all segments; the last one is left out if nothing of it counts.

    Args:
        next_seq: rows below were synced; None: it isn't known how far that holds.
    """
    made: list[Segment] = []
    for place, first in enumerate(names):
        following = names[place + 1] if place + 1 < len(names) else None
        segment = _segment(history, first, following, next_seq)
        if segment is not None:
            made.append(segment)
    for before, after in pairwise(made):
        if before.end != after.first:
            raise StateError(
                f"{history.port.where(after.first)}: begins with row {after.first}, and the one before ends"
                f" before row {before.end}",
                hint="a file is missing, or isn't of this history",
                code="state.corrupt",
            )
    return made


def _segment(history: History, first: int, following: int | None, next_seq: int | None) -> Segment | None:
    port = history.port
    index = merged_index(port.indexes(first))
    try:
        found = read_index_head(index)
    except ValueError as error:
        raise StateError(f"{port.where(first, 'index')}: {error}", code="state.version") from None
    schema, expected = head(history.full_schema)
    start = len(memoryview(schema))
    if found is not None and found != read_index_head(memoryview(expected)):
        raise StateError(
            f"{port.where(first)}: holds other columns than the stream has",
            hint="give history= another folder, or the connection point another name",
            code="state.history",
        )
    entries = read_entries(index)
    synced = following if following is not None else next_seq
    lost = found is None and all(entry is None for entry in entries)
    if lost and (synced is None or synced <= first):
        if next_seq is None and len(memoryview(port.read(first, start, 1))):
            raise _unknown(history, first)
        return None  # it was being begun, or is behind what counts
    segment = Segment(first, start)
    if following is not None:
        _take_all(segment, entries, following)
    elif (place := _last(history, first, entries, next_seq)) is not None:
        entry = entries[place]
        assert entry is not None, "a damaged one isn't the last"
        _take_all(segment, entries[: place + 1], entry.end)
    elif lost and synced is not None:
        segment.add(_damaged(segment, synced, start))
    return segment


def _unknown(history: History, first: int) -> StateError:
    return StateError(
        f"{history.port.where(first, 'index')}: it and its copy are missing or damaged, so nobody knows which"
        f" rows from {first} on {history.port.where(first)} holds",
        hint="put one of them back from a copy of the folder",
        code="state.corrupt",
    )


def _last(
    history: History, first: int, entries: list[RecordEntry | None], next_seq: int | None
) -> int | None:
    """The last record of the last segment that counts; None: none does."""
    for place in reversed(range(len(entries))):
        entry = entries[place]
        if entry is None or (next_seq is not None and entry.first >= next_seq):
            continue
        if next_seq is None or len(history.port.read(first, entry.start + entry.length - 1, 1)):
            return place
    return None


def _follows(segment: Segment, entry: RecordEntry) -> bool:
    return entry.first == segment.end and entry.start == segment.rows_bytes


def _take_all(segment: Segment, entries: list[RecordEntry | None], following: int) -> None:
    """All entries of a segment that was synced; of damaged ones, what those around them say."""
    fits = [entry if entry is not None and entry.end <= following else None for entry in entries]
    for place, entry in enumerate(fits):
        if entry is not None and _follows(segment, entry):
            segment.add(entry)
            continue
        whole = [each for each in fits[place + 1 :] if each is not None and each.first >= segment.end]
        end, stop = (whole[0].first, whole[0].start) if whole else (following, segment.rows_bytes)
        segment.add(_damaged(segment, end, stop))
    if segment.end < following:
        segment.add(_damaged(segment, following, segment.rows_bytes))


def _damaged(segment: Segment, end: int, stop: int) -> RecordEntry:
    before = segment.entries[-1] if segment.entries else None
    boundary_us = before.boundary_us if before else int(START_US)
    most_us = max(before.before_us, before.most_us) if before else int(START_US)
    return RecordEntry(
        first=segment.end,
        rows=end - segment.end,
        start=segment.rows_bytes,
        length=max(0, stop - segment.rows_bytes),
        boundary_us=boundary_us,
        least_us=int(START_US),
        most_us=int(END_US),
        before_us=most_us,
        sum=None,
    )


def _shorten(history: History, segments: list[Segment], next_seq: int) -> tuple[Train, int, int] | None:
    """Leave out of the last segment, which begins before ``next_seq``, the rows from there on.

    Returns:
        The rows that stay of a record that goes because some of it has to, with its boundary and the
        largest time before it.
    """
    last = segments[-1]
    made = Segment(last.first, last.entries[0].start if last.entries else last.rows_bytes)
    kept: tuple[Train, int, int] | None = None
    for entry in last.entries:
        if entry.first >= next_seq:
            break
        if entry.end <= next_seq:
            made.add(entry)
            continue
        try:
            train = history.load(last, entry).part(0, next_seq - entry.first)
        except StateError:
            made.add(_damaged(made, next_seq, made.rows_bytes))
        else:
            kept = train, entry.boundary_us, entry.before_us
    segments[-1] = made
    return kept
