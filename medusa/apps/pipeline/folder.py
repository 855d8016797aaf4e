"""What an archive is on disk: Parquet files of a stream, and a manifest that is written last.

    flows/
      _manifest.json            what is here: the stream's columns and time, and every file that counts
      _query.json               a query over it, as q.to_json() writes it; where there is one
      _writing.json             only while it is written for the first time, or where that was cut short
      _lock                     held by the process that writes
      rows/
        2011-08-18T15-39-00-0004-5f0c1d.parquet

Files have the columns of the stream, ``_seq`` (int64, unique: the position of the row in its stream), and
where they are known ``_late`` and ``_shed`` (bool). Rows of a file are in order of ``_seq``, and their times
are in one range of ``period_us``, by whose start the file is named. What the manifest doesn't list doesn't
count: a task that was run twice, a writer that was killed. So readers see a whole archive or an older one.

The results of ``md.spark.history`` are kept in the same way (kind ``table``), without ``_seq``.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import pyarrow as pa

from medusa.decoders import json_decoder
from medusa.errors import DataError, StateError
from medusa.query.boxes import Schema
from medusa.query.types import is_type, to_arrow
from medusa.runtime.machine.locks import FolderLock
from medusa.spark.dataframes.source import META

if TYPE_CHECKING:
    from medusa.query.builder import Query

__all__ = [
    "ArchiveFile",
    "ArchiveLock",
    "BY",
    "Draft",
    "LOCK",
    "MANIFEST",
    "Manifest",
    "ROWS",
    "Stored",
    "VERSION",
    "WRITING",
    "begin",
    "begun",
    "discard",
    "open_folder",
    "sweep",
    "sync_folder",
    "write_manifest",
]

_HEADS = json_decoder(dict[str, Any])

_STARTS = json_decoder(dict[str, str | int | float | None])

MANIFEST, WRITING, QUERY, ROWS = "_manifest.json", "_writing.json", "_query.json", "rows"
"""Names with ``_`` in front are passed by where Spark, pyarrow or DuckDB read a folder."""
VERSION = 1
FOLDER_MODE = 0o700

BY = "archive"
"""Who made it, of an archive that a stream goes to; ``reader`` is then the name of its reader."""

Count = Annotated[int, msgspec.Meta(ge=0)]


LOCK = "_lock"
FILE_MODE = 0o600


class ArchiveLock(FolderLock):
    """A folder for us alone, until it is closed.

    Raises:
        DataError: another writes there.
        OSError: the file can't be made.
    """

    def __init__(self, folder: Path) -> None:
        number = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        try:
            super().__init__(number, str(folder))
        except StateError:
            raise DataError(
                f"{folder}: another process writes into it", hint="end that one first", code="data.archive"
            ) from None


class ArchiveFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file.

    Attributes:
        path: from the folder on, with ``/``.
        first, last: the least and largest ``_seq``; null in a table.
        from_us, to_us: the least and largest time, microseconds; null where the stream has none.
        late, shed: how many rows are marked so.
    """

    path: str
    rows: Count
    bytes: Count
    first: int | None = None
    last: int | None = None
    from_us: int | None = None
    to_us: int | None = None
    late: Count = 0
    shed: Count = 0


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a folder holds.

    Attributes:
        medusa_archive: the version of the format.
        kind: ``archive`` or ``table``.
        stream: the name of the source, sink or stream.
        schema: its columns.
        time, unit: as of a source; null: rows have no time of their own.
        period_us: the range of time of a file; null: files are cut by ``_seq``.
        marks: those of ``_late`` and ``_shed`` that files have.
        complete: no more rows will come.
        epoch: of an archive that grows: the last batch that is in it. Writing one again changes nothing.
        made: by what, and of what; for the reader.
        medusa: the version of Medusa that wrote it.
        rows: of all files.
    """

    medusa_archive: int
    kind: str
    stream: str
    schema: Schema
    time: str | None = None
    unit: str | None = None
    period_us: int | None = None
    marks: tuple[str, ...] = ()
    complete: bool = True
    epoch: int | None = None
    made: dict[str, str | int | float | None] = {}
    medusa: str = ""
    rows: Count = 0
    files: tuple[ArchiveFile, ...] = ()

    @property
    def from_us(self) -> int | None:
        """The least time of a row."""
        return min((part.from_us for part in self.files if part.from_us is not None), default=None)

    @property
    def to_us(self) -> int | None:
        """The largest time of a row."""
        return max((part.to_us for part in self.files if part.to_us is not None), default=None)

    @property
    def of_stream(self) -> bool:
        """A stream goes there, whose rows have numbers without gaps."""
        return self.made.get("by") == BY

    @property
    def from_row(self) -> int | None:
        """Of a stream's archive: the number of the row that it begins with; None: there is none."""
        return min((part.first for part in self.files if part.first is not None), default=None)

    @property
    def to_row(self) -> int | None:
        """The number of its last row; None: there is none."""
        return max((part.last for part in self.files if part.last is not None), default=None)

    @property
    def missing_rows(self) -> int:
        """Of a stream's archive: rows between its first and its last that nobody had any more."""
        first, last = self.from_row, self.to_row
        if not self.of_stream or first is None or last is None:
            return 0
        return last + 1 - first - self.rows

    @property
    def columns(self) -> pa.Schema:
        """The columns of the files."""
        return pa.schema([(field.name, to_arrow(field.type)) for field in self.schema] + self.meta)

    @property
    def meta(self) -> list[tuple[str, pa.DataType]]:
        """The columns that aren't the stream's."""
        if self.kind == "table":
            return []
        return [(META[0], pa.int64()), *((name, pa.bool_()) for name in META[1:] if name in self.marks)]

    def to_json(self) -> dict[str, Any]:
        """What a command tells of it: all but the files."""
        told: dict[str, Any] = msgspec.to_builtins(self)
        told["files"] = len(self.files)
        told |= {"from_us": self.from_us, "to_us": self.to_us, "from_row": self.from_row}
        told["missing_rows"] = self.missing_rows
        told["bytes"] = sum(part.bytes for part in self.files)
        return told


_MANIFESTS = json_decoder(Manifest)


class Stored:
    """A folder that holds a whole archive, or table."""

    def __init__(self, path: Path, manifest: Manifest) -> None:
        self.path = path
        self.manifest = manifest

    def __repr__(self) -> str:
        return f"Stored({str(self.path)!r}, {self.manifest.stream}, {self.manifest.rows:,} rows)"

    @property
    def files(self) -> list[str]:
        """The paths of its files, in order of ``_seq``."""
        parts = sorted(self.manifest.files, key=lambda part: (part.first or 0, part.path))
        return [str(self.path / part.path) for part in parts]


def open_folder(path: str | Path, *, kind: str = "archive", whole: bool = True) -> Stored:
    """The archive, or table, of a folder.

    Args:
        whole: look whether each file is there and as long as the manifest says.

    Raises:
        DataError: there is no such folder, none of ours, one that was never finished, or a file is missing.
    """
    path = Path(path)
    if not path.is_dir():
        raise DataError(f"{path}: there is no such folder", code="data.archive")
    try:
        text = (path / MANIFEST).read_bytes()
    except FileNotFoundError:
        raise _unfinished(path) from None
    except OSError as error:
        raise DataError(f"{path / MANIFEST} can't be read: {error.strerror}", code="data.archive") from None
    manifest = _read(path / MANIFEST, text)
    if manifest.kind != kind:
        raise DataError(f"{path} holds a {manifest.kind}, expected an {kind}", code="data.archive")
    if whole:
        for part in manifest.files:
            _check_file(path, part)
    return Stored(path.resolve(), manifest)


def _unfinished(path: Path) -> DataError:
    if (path / WRITING).exists():
        return DataError(
            f"{path}: is half-written: what wrote it didn't end, or hasn't yet",
            hint="write it again, with --replace (replace=True)",
            code="data.archive",
        )
    return DataError(
        f"{path}: is no archive: it has no {MANIFEST}",
        hint="name the folder that medusa pipeline wrote",
        code="data.archive",
    )


def _read(path: Path, text: bytes) -> Manifest:
    """A manifest comes from a disk that others write too: what it says is checked."""
    try:
        version = _HEADS.decode(text).get("medusa_archive")
        if version != VERSION:
            raise DataError(
                f"{path}: format {version!r:.20}, and this is Medusa for {VERSION}", code="data.archive"
            )
        made = _MANIFESTS.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DataError(f"{path} is no manifest: {str(error)[:200]}", code="data.archive") from None
    if made.kind not in ("archive", "table"):
        raise DataError(f"{path}: kind {made.kind!r:.40}", code="data.archive")
    for field in made.schema:
        if not is_type(field.type):
            raise DataError(
                f"{path}: column {field.name!r:.80}: there is no type {field.type!r:.80}", code="data.archive"
            )
    names = [field.name for field in made.schema]
    if len({*names}) < len(names) or not {*made.marks} <= {*META[1:]} or {*names} & {*META}:
        raise DataError(f"{path}: columns stand twice, or have names with a meaning", code="data.archive")
    if made.time is not None and made.time not in names:
        raise DataError(f"{path}: there is no column {made.time!r:.80}, the time", code="data.archive")
    if made.rows != sum(part.rows for part in made.files):
        raise DataError(f"{path}: its files have other rows than it says", code="data.archive")
    for part in made.files:
        place = PurePosixPath(part.path)
        if place.is_absolute() or ".." in place.parts:
            raise DataError(f"{path}: {part.path!r:.100} isn't in the folder", code="data.archive")
        if made.kind == "archive" and (part.first is None or part.last is None or part.first > part.last):
            raise DataError(f"{path}: {part.path!r:.100} has no positions", code="data.archive")
    return made


def _check_file(path: Path, part: ArchiveFile) -> None:
    try:
        found = (path / part.path).stat().st_size
    except OSError:
        raise DataError(
            f"{path}: {part.path} is missing", hint="it was taken out of the folder", code="data.archive"
        ) from None
    if found != part.bytes:
        raise DataError(
            f"{path}: {part.path} has {found:,} bytes, and was written with {part.bytes:,}",
            hint="it was cut off or changed",
            code="data.archive",
        )


class Draft:
    """A folder that is being written; ``publish`` makes it whole.

    It is ours until it is published or discarded.
    """

    def __init__(self, path: Path, lock: ArchiveLock | None = None) -> None:
        self.path = path
        self._lock = lock

    def close(self) -> None:
        """Let go of the folder; it stays as it is."""
        if self._lock is not None:
            self._lock.close()

    def publish(self, manifest: Manifest, query: Query | None = None) -> Stored:
        """Write the manifest, with its rows and our version; files that it doesn't list go."""
        sweep(self.path, manifest)
        sync_folder(self.path / ROWS)
        if query is not None:
            write_file(self.path / QUERY, query.to_json().encode())
        manifest = write_manifest(self.path, manifest)
        (self.path / WRITING).unlink()
        sync_folder(self.path)
        self.close()
        return Stored(self.path, manifest)


def write_manifest(folder: Path, manifest: Manifest) -> Manifest:
    """In place of the one that is there, whole or not at all; with its rows and our version."""
    manifest = msgspec.structs.replace(
        manifest, medusa=_version(), rows=sum(part.rows for part in manifest.files)
    )
    write_file(folder / MANIFEST, msgspec.json.format(msgspec.json.encode(manifest), indent=1))
    return manifest


def sweep(folder: Path, manifest: Manifest) -> None:
    """Remove files of rows that a manifest doesn't list: of tasks that failed, ran twice or were killed."""
    listed = {part.path for part in manifest.files}
    for file in (folder / ROWS).rglob("*"):
        if file.is_file() and file.relative_to(folder).as_posix() not in listed:
            file.unlink()


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("medusa-streams")
    except PackageNotFoundError:  # run from its folder
        return ""


def begun(path: Path) -> dict[str, str | int | float | None] | None:
    """What a half-written folder says that it is made of; None: it is whole, or none of ours.

    Raises:
        DataError: what it says can't be read.
    """
    if (path / MANIFEST).exists() or not (path / WRITING).exists():
        return None
    try:
        return _STARTS.decode((path / WRITING).read_bytes())
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise DataError(f"{path / WRITING} can't be read: {str(error)[:200]}", code="data.archive") from None


def begin(
    path: str | Path,
    *,
    replace: bool,
    made: Mapping[str, str | int | float | None],
    kind: str = "archive",
    held: bool = False,
) -> Draft:
    """A folder to write into; from now on, until it is published, it counts as half-written.

    Args:
        replace: what is there of this kind goes, whole or half-written; but no archive of a stream, whose
            rows may be nowhere else.
        kind: as of ``Manifest``.
        held: the caller has its lock, and is who archives a stream.

    Raises:
        DataError: there is something already, another writes there, or the folder can't be made; nothing was
            changed.
    """
    path = Path(path).absolute()
    lock = None
    try:
        _check_place(path, replace=replace, kind=kind, held=held)
        path.mkdir(FOLDER_MODE, parents=True, exist_ok=True)
        if not held:
            lock = ArchiveLock(path)
            _check_place(path, replace=replace, kind=kind, held=held)  # Until now it was others' too.
        write_file(path / WRITING, msgspec.json.encode(dict(made)))
        for name in (MANIFEST, QUERY):
            with contextlib.suppress(FileNotFoundError):
                (path / name).unlink()
        if (path / ROWS).exists():
            shutil.rmtree(path / ROWS)
        (path / ROWS).mkdir(FOLDER_MODE)
        sync_folder(path)
    except BaseException as error:
        if lock is not None:
            lock.close()
        if isinstance(error, OSError):
            raise DataError(f"{path} can't be written: {error.strerror}", code="data.archive") from None
        raise
    return Draft(path, lock)


BESIDE = (LOCK, f"{WRITING}.tmp")
"""What a death may leave of a folder that was just being begun."""


def _check_place(path: Path, *, replace: bool, kind: str, held: bool) -> None:
    """Raises: DataError: the folder isn't free, and can't be replaced."""
    if not path.exists() or (path.is_dir() and all(each.name in BESIDE for each in path.iterdir())):
        return
    whole = (path / MANIFEST).exists()
    if not whole and not (path / WRITING).exists():
        raise DataError(
            f"{path}: there is something else", hint="give a folder of its own", code="data.archive"
        )
    if not replace:
        half = "" if whole else ", half-written"
        raise DataError(
            f"{path}: there is an archive already{half}",
            hint="--replace (replace=True) writes it again",
            code="data.archive",
        )
    if held:
        return
    found, noted = kind, begun(path)
    if whole:
        manifest = _read(path / MANIFEST, (path / MANIFEST).read_bytes())
        found, noted = manifest.kind, manifest.made
    of_stream = noted is not None and noted.get("by") == BY and isinstance(noted.get("reader"), str)
    if of_stream or found != kind:
        what = "the archive of a stream" if of_stream else f"{'an' if found == 'archive' else 'a'} {found}"
        raise DataError(
            f"{path}: holds {what}, and isn't replaced",
            hint="give another folder, or remove this one",
            code="data.archive",
        )


def discard(draft: Draft) -> None:
    """Take away what was written; the folder stays, known as half-written."""
    shutil.rmtree(draft.path / ROWS, ignore_errors=True)
    draft.close()


def write_file(path: Path, data: bytes) -> None:
    """Whole or not at all, also after a power cut."""
    draft = path.with_name(path.name + ".tmp")
    with draft.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


def sync_folder(folder: Path) -> None:
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
