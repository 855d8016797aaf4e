"""Opening a history: it goes back to where the state is, and what a killed writer left behind that goes.

A history is synced before a checkpoint is written, so after a restore it reaches at least to the row at
which the state stands. What is beyond is cut off, torn or not: those rows come again with what is pushed
again. What is before was synced: if its bytes aren't right, that is damage. Where a whole end of it is
missing, opening is refused; else it is told when its rows are read, and takes no other rows with it.
"""

from __future__ import annotations

from itertools import pairwise

from medusa.elements import END_US, START_US, Train
from medusa.engine.history import History, Segment, part_of
from medusa.engine.history_records import Entry, decode, head, read_entries, read_head
from medusa.errors import StateError

__all__ = ["open_history", "read_history"]

SCHEMA_BYTES_MAX = 1 << 24


def open_history(history: History, next_seq: int, most_us: int) -> None:
    """Take over the segments there are, for a stream that goes on with row ``next_seq``.

    Args:
        most_us: the largest time of all rows before that.

    Raises:
        StateError: rows before ``next_seq`` are missing, the files are of other columns or of a later
            version, or can't be read: nothing was changed. Or they can't be cut.
    """
    segments = _segments(history, next_seq)
    end = segments[-1].end if segments else next_seq
    if end < next_seq:
        raise StateError(
            f"{history.port.where(segments[-1].first)}: ends before row {end}, and the checkpoint stands at"
            f" row {next_seq}: rows between are missing",
            hint="give history= another folder: it begins at the checkpoint",
            code="state.history",
        )
    for first in history.port.names()[len(segments) :]:  # nothing but a torn head
        history.port.remove(first)
    if segments and segments[0].first > next_seq:
        _remove(history, segments)
    kept = _go_back(history, segments, next_seq)
    history.take_over(segments, next_seq, most_us)
    if kept is not None:  # the first rows of a record that the cut went through
        train, boundary_us, before_us = kept
        history.take_over(segments, train.first_seq, before_us)
        history.append(train, boundary_us)
        history.sync()
        history.most_us = max(history.most_us, most_us)


def read_history(history: History) -> None:
    """Take over the segments there are, for reading only: nothing is changed.

    Raises:
        StateError: they are of other columns or of a later version, or can't be read. Damage is told when
            rows are read.
    """
    segments = [each for each in _segments(history, None) if each.entries]
    last = segments[-1].entries[-1] if segments else None
    most_us = int(START_US) if last is None else max(last.before_us, last.most_us)
    history.take_over(segments, last.end if last else 0, most_us)


def _segments(history: History, next_seq: int | None) -> list[Segment]:
    """What is known of all segments; the last one is left out if nothing of it counts.

    Args:
        next_seq: rows below were synced; None: it isn't known how far that holds.
    """
    names = history.port.names()
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
    index = memoryview(port.index(first)).cast("B")
    beginning = port.read(first, 0, SCHEMA_BYTES_MAX)
    try:
        start = read_head(index, beginning)
    except ValueError as error:
        raise StateError(f"{port.where(first, 'index')}: {error}", code="state.version") from None
    synced = following if following is not None else next_seq
    if start is None:
        if synced is None or synced <= first:
            return None  # it was being begun
        segment = Segment(first, 0)
        segment.add(_damaged(segment, synced, 0))
        return segment
    if bytes(memoryview(beginning).cast("B")[:start]) != bytes(head(history.full_schema)[0]):
        raise StateError(
            f"{port.where(first)}: holds other columns than the stream has",
            hint="give history= another folder, or the connection point another name",
            code="state.history",
        )
    segment = Segment(first, start)
    entries = read_entries(index)
    if following is not None:
        _take_all(segment, entries, following)
    elif (place := _last(history, first, entries, next_seq)) is not None:
        entry = entries[place]
        assert entry is not None, "a damaged one isn't the last"
        _take_all(segment, entries[: place + 1], entry.end)
    return segment


def _last(history: History, first: int, entries: list[Entry | None], next_seq: int | None) -> int | None:
    """The last record of the last segment that counts; None: none does."""
    for place in reversed(range(len(entries))):
        entry = entries[place]
        if entry is None:
            continue
        if next_seq is None:
            if _is_whole(history, first, entry):
                return place
        elif entry.first < next_seq and len(history.port.read(first, entry.start + entry.length - 1, 1)):
            return place
    return None


def _is_whole(history: History, first: int, entry: Entry) -> bool:
    data = history.port.read(first, entry.start, entry.length)
    try:
        decode(data, entry, history.full_schema, timed=history.timed)
    except ValueError:
        return False
    return True


def _follows(segment: Segment, entry: Entry) -> bool:
    return entry.first == segment.end and entry.start == segment.rows_bytes


def _take_all(segment: Segment, entries: list[Entry | None], following: int) -> None:
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


def _damaged(segment: Segment, end: int, stop: int) -> Entry:
    before = segment.entries[-1] if segment.entries else None
    boundary_us = before.boundary_us if before else int(START_US)
    most_us = max(before.before_us, before.most_us) if before else int(START_US)
    return Entry(
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


def _remove(history: History, segments: list[Segment]) -> None:
    while segments:
        history.port.remove(segments[-1].first)
        del segments[-1]


def _go_back(history: History, segments: list[Segment], next_seq: int) -> tuple[Train, int, int] | None:
    """Forget the rows from ``next_seq`` on, the last first: what is left has no hole at any moment.

    Returns:
        The rows that stay of a record that went because some of it had to, with its boundary and the
        largest time before it.
    """
    while segments and segments[-1].first >= next_seq:
        history.port.remove(segments[-1].first)
        del segments[-1]
    if not segments:
        return None
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
            train = part_of(history.load(last, entry), 0, next_seq - entry.first)
        except StateError:
            made.add(_damaged(made, next_seq, made.rows_bytes))
        else:
            kept = train, entry.boundary_us, entry.before_us
    segments[-1] = made
    if not made.is_damaged:  # else nothing is added to it, and its end is where the next one begins
        history.port.cut(made.first, made.rows_bytes, made.index_bytes)
    return kept
