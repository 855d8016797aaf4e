"""An archive that grows by epochs, each of which is in it once: what ``md.spark.archive`` writes to.

The manifest decides. Files of an epoch are written first, under names that nobody else uses; then a manifest
that lists them takes the place of the one before, by a rename, with the number of the epoch. Whoever dies
before that has written nothing, and whoever dies behind it has written the epoch: brought again, it is passed
over. Readers see the archive as it is after some epoch.

    flows/
      _manifest.json    with ``epoch`` and ``complete``
      _checkpoint/      Spark's: which rows an epoch has. It belongs to this folder
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from medusa.apps.pipeline.folder import (
    BY,
    LOCK,
    MANIFEST,
    ROWS,
    VERSION,
    WRITING,
    ArchiveFile,
    ArchiveLock,
    Manifest,
    Stored,
    begin,
    begun,
    open_folder,
    sweep,
    sync_folder,
    write_manifest,
)
from medusa.errors import DataError
from medusa.query.boxes import Schema

if TYPE_CHECKING:
    from medusa.query.builder import Query

__all__ = ["CHECKPOINT", "Growing", "give_up", "held", "next_row", "reader_of"]

CHECKPOINT = "_checkpoint"


@contextlib.contextmanager
def held(folder: str | Path) -> Iterator[Path]:
    """The folder for us alone, which is made where it doesn't exist.

    Raises:
        DataError: another process writes there, there is something else, or it can't be made.
    """
    path = Path(folder).absolute()
    try:
        if path.exists() and not path.is_dir():
            raise DataError(f"{path}: is no folder", code="data.archive")
        if path.is_dir() and not (path / LOCK).exists() and any(path.iterdir()):
            what = "an archive that no stream goes to" if (path / MANIFEST).exists() else "something else"
            raise DataError(f"{path}: there is {what}", hint="give a folder of its own", code="data.archive")
        path.mkdir(0o700, parents=True, exist_ok=True)
        lock = ArchiveLock(path)
    except OSError as error:
        raise DataError(f"{path} can't be written: {error.strerror}", code="data.archive") from None
    try:
        yield path
    finally:
        lock.close()


def reader_of(folder: Path, stream: str) -> str:
    """The name under which an archive reads its stream: its own, and the same each time.

    Noted before it is used, so that no start leaves a reader behind at the gateway.

    Raises:
        DataError: the folder holds what no stream goes to, or another one.
    """
    if (folder / MANIFEST).exists():
        manifest = open_folder(folder, whole=False).manifest
        made, held_stream = manifest.made, manifest.stream
    else:
        found = begun(folder)
        if found is None:
            found = {"by": BY, "stream": stream, "reader": f"archive-{secrets.token_hex(8)}"}
            begin(folder, replace=False, made=found, held=True)
        made, held_stream = found, str(found.get("stream"))
    reader = made.get("reader")
    if made.get("by") != BY or not isinstance(reader, str):
        raise DataError(
            f"{folder}: there is an archive that no stream goes to",
            hint="give a folder of its own",
            code="data.archive",
        )
    if held_stream != stream:
        raise DataError(
            f"{folder}: is the archive of stream {held_stream!r:.120}, and {stream!r:.120} was asked for",
            hint="give a folder of its own",
            code="data.archive",
        )
    return reader


def give_up(folder: Path) -> None:
    """Take back what ``reader_of`` noted in a folder that wasn't begun."""
    with contextlib.suppress(FileNotFoundError):
        (folder / ROWS).rmdir()
    (folder / WRITING).unlink(missing_ok=True)


class Growing:
    """An archive for one who holds its folder.

    Objects hold no state but the path: a copy in another process, or a later one, does the same.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def opened(
        cls,
        folder: Path,
        *,
        stream: str,
        schema: Schema,
        time: str | None = None,
        unit: str | None = None,
        period_us: int | None = None,
        marks: Sequence[str] = (),
        made: Mapping[str, str | int | float | None] | None = None,
        query: Query | None = None,
    ) -> Growing:
        """The archive of a folder for which ``reader_of`` was called: as it is, or begun with no rows.

        What tasks left that were killed is removed.

        Raises:
            DataError: it is of other columns, or its checkpoint is gone.
        """
        if not (folder / MANIFEST).exists():
            noted = begun(folder) or {}
            draft = begin(folder, replace=True, made=noted, held=True)
            draft.publish(
                Manifest(
                    medusa_archive=VERSION,
                    kind="archive",
                    stream=stream,
                    schema=schema,
                    time=time,
                    unit=unit,
                    period_us=period_us,
                    marks=tuple(marks),
                    complete=False,
                    made={**noted, **(made or {})},
                ),
                query,
            )
            return cls(folder)
        manifest = open_folder(folder).manifest
        for what, has, asked in (
            ("columns", manifest.schema, schema),
            ("time", (manifest.time, manifest.unit), (time, unit)),
            ("period", manifest.period_us, period_us),
        ):
            if has != asked:
                raise DataError(
                    f"{folder}: was begun with another {what}: {_shown(has)}, and now it is {_shown(asked)}",
                    hint="go on with the same, or give a folder of its own",
                    code="data.archive",
                )
        if manifest.epoch is not None and not (folder / CHECKPOINT).is_dir():
            raise DataError(
                f"{folder}: Spark's checkpoint ({CHECKPOINT}) is gone, so where to go on isn't known",
                hint="keep this folder as it is, and archive the stream into another",
                code="data.archive",
            )
        (folder / ROWS).mkdir(0o700, exist_ok=True)
        (folder / WRITING).unlink(missing_ok=True)
        sweep(folder, manifest)
        return cls(folder)

    @property
    def manifest(self) -> Manifest:
        """What is there now."""
        return open_folder(self.folder, whole=False).manifest

    def held_to(self, epoch: int) -> int | None:
        """The last row of an archive that has this epoch: rows up to it are written; None: it hasn't."""
        manifest = self.manifest
        return manifest.to_row if _has(manifest, epoch) else None

    def add(self, epoch: int, parts: Sequence[ArchiveFile]) -> Manifest:
        """Take an epoch whose files are written and synced; durable when this returns.

        Files of an epoch that is there already are passed over. Rows of it that the archive doesn't have are
        taken: Spark doesn't sync its checkpoint, and behind a power cut plans an epoch anew.

        Returns:
            What the archive is then.

        Raises:
            DataError: files have no positions, or some that are in the archive with others that aren't.
        """
        before = self.manifest
        last, known = before.to_row, _has(before, epoch)
        if known and last is not None:
            parts = [part for part in parts if part.last is None or part.last > last]
        for part in parts:
            if part.first is None or (last is not None and part.first <= last):
                raise DataError(
                    f"{self.folder}: epoch {epoch} begins with row {part.first}, and row {last} is there",
                    hint="the stream was defined anew, or the checkpoint is another's: "
                    "archive into another folder",
                    code="data.archive",
                )
        if not parts:
            return before
        sync_folder(self.folder / ROWS)
        epoch = max(epoch, -1 if before.epoch is None else before.epoch)
        return self._write(msgspec.structs.replace(before, epoch=epoch, files=(*before.files, *parts)))

    def complete(self) -> Stored:
        """No more rows will come; durable when this returns."""
        manifest = self.manifest
        if not manifest.complete:
            manifest = self._write(msgspec.structs.replace(manifest, complete=True))
        return Stored(self.folder, manifest)

    def _write(self, manifest: Manifest) -> Manifest:
        written = write_manifest(self.folder, manifest)
        sync_folder(self.folder)
        return written


def _has(manifest: Manifest, epoch: int) -> bool:
    return manifest.epoch is not None and epoch <= manifest.epoch


def next_row(manifest: Manifest) -> int | None:
    """The number behind the last row; None: there is no row."""
    last = manifest.to_row
    return None if last is None else last + 1


def _shown(value: object) -> str:
    if isinstance(value, tuple) and all(isinstance(each, msgspec.Struct) for each in value):
        return ", ".join(f"{each.name} {each.type}" for each in value)[:200]
    return str(value)[:200]
