"""Opening a history: what a killed writer left is cut off, and it goes back to where the state is.

A record is written before its entry, and the last segment may end in a torn or unsynced one: it is cut at
the first record that isn't whole. Segments before the last were synced when the next one began, so there
damage is damage: it is found when rows are read, and takes no other rows with it.

A history is synced before a checkpoint is written, so after a restore it reaches at least to the row at
which the state stands. What is beyond goes: those rows come again with what is pushed again.
"""

from __future__ import annotations

from itertools import pairwise

from medusa.elements import END_US, START_US, Train
from medusa.engine.history import History, Segment, part_of
from medusa.engine.history_records import Entry, decode, head, read_entries, read_head
from medusa.errors import StateError

__all__ = ["open_history", "read_history"]


def open_history(history: History, next_seq: int, most_us: int) -> None:
    """Take over the segments there are, for a stream that goes on with row ``next_seq``.

    Args:
        most_us: the largest time of all rows before that.

    Raises:
        StateError: rows before ``next_seq`` are missing, the files are of other columns or of a later
            version, or can't be read: nothing was changed. Or they can't be cut.
    """
    segments = _segments(history)
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
    segments = [each for each in _segments(history) if each.entries]
    last = segments[-1].entries[-1] if segments else None
    most_us = int(START_US) if last is None else max(last.before_us, last.most_us)
    history.take_over(segments, last.end if last else 0, most_us)


def _segments(history: History) -> list[Segment]:
    """Of all segments what is whole; not the last one if nothing of it is."""
    names = history.port.names()
    made: list[Segment] = []
    for place, first in enumerate(names):
        following = names[place + 1] if place + 1 < len(names) else None
        segment = _segment(history, first, following)
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


def _segment(history: History, first: int, following: int | None) -> Segment | None:
    port = history.port
    index = memoryview(port.index(first)).cast("B")
    ours = memoryview(head(history.full_schema)[0])
    beginning = port.read(first, 0, 1 << 20)
    try:
        start = read_head(index, beginning)
    except ValueError as error:
        raise StateError(f"{port.where(first, 'index')}: {error}", code="state.version") from None
    if start is None:
        if following is None:
            return None
        segment = Segment(first, 0)
        segment.add(_damaged(segment, following, 0))
        return segment
    if bytes(memoryview(beginning).cast("B")[:start]) != bytes(ours):
        raise StateError(
            f"{port.where(first)}: holds other columns than the stream has",
            hint="give history= another folder, or the connection point another name",
            code="state.history",
        )
    segment = Segment(first, start)
    entries = read_entries(index)
    if following is not None:
        _take_all(segment, entries, following)
        return segment
    for entry in entries:
        if entry is None or not _follows(segment, entry) or not _whole(history, segment, entry):
            break
        segment.add(entry)
    return segment


def _follows(segment: Segment, entry: Entry) -> bool:
    return entry.first == segment.end and entry.start == segment.rows_bytes


def _whole(history: History, segment: Segment, entry: Entry) -> bool:
    data = history.port.read(segment.first, entry.start, entry.length)
    try:
        decode(data, entry, history.full_schema, timed=history.timed)
    except ValueError:
        return False
    return True


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
    if last.is_damaged and last.end == next_seq:
        return None
    kept = [entry for entry in last.entries if entry.first < next_seq]
    cut = kept.pop() if kept and kept[-1].end > next_seq else None
    train = None if cut is None else history.load(last, cut)
    made = Segment(last.first, last.entries[0].start if last.entries else last.rows_bytes)
    for entry in kept:
        made.add(entry)
    segments[-1] = made
    history.port.cut(made.first, made.rows_bytes, made.index_bytes)
    if cut is None or train is None:
        return None
    return part_of(train, 0, next_seq - cut.first), cut.boundary_us, cut.before_us
