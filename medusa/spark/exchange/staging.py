"""Rows that Spark writes, from the attempt of a task to the stream: staged, published by epochs, delivered.

    w<writer>-<epoch>-<partition>-<attempt>-000000     a chunk of rows: a group of the store
    w<writer>-<epoch>-<partition>-<attempt>-whole      says how many chunks there are, once all are
    decisions-000000001.log                            the journal: an epoch is published by one record of it

A chunk is on disk when ``stage`` returns. What is staged belongs to nobody until ``publish``, whose record
decides; from then on its rows are numbered behind all that were published into the stream before, and no
abort touches them. What no record names is garbage: of aborted epochs, of attempts that died.
"""

from __future__ import annotations

import functools
import json
import re
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from medusa.engine.state.checkpoint import seal, unseal
from medusa.errors import DataError, FullError, LinkError, StateError
from medusa.ports import Buffer, Journal, Store
from medusa.spark.exchange.attempts import Attempts
from medusa.spark.exchange.journal import (
    DeliveredRecord,
    Dropped,
    ExchangeJournal,
    JournalSnapshot,
    Line,
    Published,
    Queued,
    WriterLine,
    check_again,
    is_damaged,
    pack,
    unpack,
)
from medusa.spark.exchange.requests import WholeAttempt, mark_of
from medusa.units import size_text

__all__ = ["Staging"]

P = ParamSpec("P")
T = TypeVar("T")

JOURNAL_BYTES = 1 << 20
"""From here on a new journal is begun, once it is twice what it began with."""

GROUPS_MAX = 1 << 20
"""Chunks and notes on disk, however small: more than the tasks of an epoch need."""

_GROUP = re.compile(r"((w[0-9a-f]{16})-([0-9x]{1,19})-\d{1,9}-[0-9a-f]{16})-(\d{6}|whole)")
ROWS = "rows"


class Sized(Store, Protocol):
    """A store that knows how large a file is without reading it."""

    def size(self, name: str, file: str) -> int:
        """Bytes of a file of a group; 0: there is none.

        Raises:
            StateError: it can't be told.
        """


def _locked(method: Callable[Concatenate[Staging, P], T]) -> Callable[Concatenate[Staging, P], T]:
    """One thread at a time is in these methods."""

    @functools.wraps(method)
    def run(staging: Staging, /, *args: P.args, **named: P.kwargs) -> T:
        with staging._lock:
            return method(staging, *args, **named)

    return run


class Staging:
    """All that was written to this gateway and isn't at its nodes. Any thread may call.

    Args:
        store, journal: one folder, of which nobody else takes anything away.
        bytes_max: of rows that are staged or on their way; with that it is full.
        now_s: seconds that never run back.
        age_s: what was staged so long ago and isn't published is forgotten.

    Raises:
        StateError: what is there can't be read.
    """

    def __init__(
        self, store: Sized, journal: Journal, *, bytes_max: int, now_s: Callable[[], float], age_s: float
    ) -> None:
        self._store, self._journal = store, journal
        self._bytes_max, self._now_s, self._age_s = bytes_max, now_s, age_s
        self._attempts = Attempts()
        self._broken = False
        self._lock = threading.RLock()
        self.books = ExchangeJournal()
        self._number = self._length = self._began = 0
        self._open()

    def _open(self) -> None:
        for name in self._store.names():
            if found := _GROUP.fullmatch(name):
                self._attempts.see(found[1], before=True)
                self._attempts.note(found[1], name, self._store.size(name, ROWS), self._now_s())
        numbers = self._journal.numbers()
        self._read(numbers)
        self._attempts.publish(self.books.tokens())
        self._number = numbers[-1] if numbers else 0
        self._turn()
        for each in self.books.writers():
            self._let_go(self._attempts.before(mark_of(each.writer), each.epoch))

    def _read(self, numbers: list[int]) -> None:
        """Take up what the last journal says that was begun.

        What is torn at its end, or was just being begun, nobody was told of. All else that can't be read
        is refused: opened as empty it would number rows again that the nodes have.
        """
        longest, last = 0, 0
        for number in reversed(numbers):
            data = self._journal.read(number)
            lines, end = unpack(data)
            if is_damaged(data, end):
                raise self._damaged(number, f"is damaged at byte {end}")
            if lines:
                for line in lines:
                    self.books.add(line)
                return
            longest, last = max(longest, memoryview(data).nbytes), last or number
        if longest > len(pack(JournalSnapshot())):
            raise self._damaged(last, "is damaged at its beginning")
        if self._attempts.count:
            raise self._damaged(last, "says nothing, though rows lie beside it")

    def _damaged(self, number: int, what: str) -> StateError:
        return StateError(
            f"{self._journal.where(number)} {what}: which epochs are published can't be told",
            hint="bring it back from a copy of the folder; or give the gateway another name and folder, and "
            "its queries new checkpoints: epochs that no node has are in these files alone",
            code="state.corrupt",
        )

    def _turn(self) -> None:
        """Begin a journal with all that is known; then the earlier ones may go."""
        number, data = self._number + 1, pack(self.books.balance())
        self._journal.remove(number)
        self._journal.append(number, data)
        self._journal.sync(number)
        self._number, self._length, self._began = number, len(data), len(data)
        for each in self._journal.numbers():
            if each < number:
                self._journal.remove(each)
        # Only now: a journal that goes on is the only one, so an earlier one is never taken for it.
        self._broken = False

    def _write(self, line: Line) -> None:
        """One record, durably."""
        if self._broken or self._length >= max(JOURNAL_BYTES, 2 * self._began):
            # After a write that failed nobody knows what the journal holds: a new one says what counts.
            self._turn()
        data = pack(line)
        self._broken = True
        self._journal.append(self._number, data)
        self._journal.sync(self._number)
        self._broken = False
        self._length += len(data)

    # --- what is known ----------------------------------------------------------------------------

    @_locked
    def streams(self) -> list[str]:
        """Those that something was published into."""
        return self.books.streams()

    @_locked
    def counts(self, stream: str) -> tuple[int, int]:
        """How many rows were published into a stream, and how many of them aren't known to be at its node."""
        return self.books.end(stream), self.books.waiting(stream)

    @_locked
    def pending(self, stream: str) -> tuple[int, tuple[Queued, ...]]:
        """The first row that isn't known to be at the node, and the epochs from there on."""
        return self.books.first(stream), self.books.queue(stream)

    @_locked
    def writers(self) -> list[WriterLine]:
        """The last epoch of each writer that is remembered."""
        return self.books.writers()

    # --- staging ----------------------------------------------------------------------------------

    @property
    def nbytes(self) -> int:
        """Of rows that are staged or on their way."""
        return self._attempts.nbytes

    @property
    def unpublished_bytes(self) -> int:
        """Of these, of attempts that no epoch has named yet."""
        with self._lock:
            return sum(each.nbytes for each in self._attempts.unpublished())

    @property
    def bytes_max(self) -> int:
        """With so many it is full."""
        return self._bytes_max

    @_locked
    def stage(self, stream: str, token: str, chunk: int, rows: int, payload: Buffer) -> bool:
        """Keep a chunk.

        Returns:
            whether it is new.

        Raises:
            FullError: there is no room until rows are delivered.
            LinkError: chunks before it aren't here, or it was sealed without it (``E_STAGE``); or its epoch
                is larger than all that may be here (``E_LIMIT``).
            StateError: it couldn't be written.
        """
        name = f"{token}-{chunk:06d}"
        groups = self._attempts.groups(token)
        if name in groups:
            return False
        if f"{token}-whole" in groups:
            raise LinkError(f"{token} is sealed, and has no chunk {chunk}", code="E_STAGE")
        if chunk and f"{token}-{chunk - 1:06d}" not in groups:
            raise self._not_here(token, chunk - 1)
        nbytes = memoryview(payload).nbytes
        self._make_room(nbytes, token)
        self._store.write(name, seal({ROWS: payload}, {"stream": stream, "rows": rows}))
        self._attempts.see(token)
        self._attempts.note(token, name, nbytes, self._now_s(), (stream, rows))
        return True

    def _not_here(self, token: str, chunk: int) -> LinkError:
        return LinkError(
            f"chunk {chunk} of {token} isn't here: it was collected, or the folder is another",
            hint="run the task again",
            code="E_STAGE",
        )

    def _make_room(self, nbytes: int, token: str) -> None:
        attempts = self._attempts
        finds: tuple[Callable[[], list[str]], ...] = (
            lambda: attempts.aged(self._now_s() - self._age_s),
            lambda: attempts.earlier_runs(token, of_task=True),
            lambda: attempts.earlier_runs(token, of_task=False),
            lambda: attempts.unfinished_twins(token),
            lambda: [],
        )
        for find in finds:
            if attempts.nbytes + nbytes <= self._bytes_max and attempts.count < GROUPS_MAX:
                return
            self._let_go(find())
        if (needs := attempts.needs(token, nbytes)) > self._bytes_max:
            raise LinkError(
                f"the epoch takes {size_text(needs)} and more, and the gateway may hold "
                f"{size_text(self._bytes_max)} in all",
                hint="let a micro-batch have fewer rows (maxRowsPerBatch, maxFilesPerTrigger), write a table "
                "in parts, or give the gateway a larger `stage`",
                code="E_LIMIT",
            )
        raise FullError(
            f"the gateway holds {size_text(attempts.nbytes)} that no node has taken yet",
            hint="it goes on once the nodes take more; `stage` says how much it may hold, and "
            "`medusa gateway status` shows what keeps it",
        )

    @_locked
    def seal(self, stream: str, whole: WholeAttempt) -> bool:
        """An attempt is complete.

        Returns:
            whether that is new.

        Raises:
            LinkError: a chunk isn't here, or it isn't what was staged (``E_STAGE``).
            StateError: it couldn't be noted.
        """
        name = f"{whole.token}-whole"
        groups = self._attempts.groups(whole.token)
        if name in groups:
            self._check_whole(stream, whole)
            return False
        if missing := [n for n in range(whole.chunks) if f"{whole.token}-{n:06d}" not in groups]:
            raise self._not_here(whole.token, missing[0])
        # Rows are numbered by what it says of itself: it has to be what is sent to the node.
        staged = [self._facts(whole.token, chunk) for chunk in range(len(groups))]
        rows = sum(each for _, each in staged)
        if (len(staged), rows) != (whole.chunks, whole.rows) or any(name != stream for name, _ in staged):
            raise LinkError(
                f"{whole.token} has {len(staged)} chunks of {rows:,} rows for "
                f"{' and '.join(sorted({repr(name) for name, _ in staged}))}, and was to be sealed as "
                f"{whole.chunks} of {whole.rows:,} for {stream!r}",
                hint="run the task again",
                code="E_STAGE",
            )
        if not whole.chunks:  # Else its chunks were let in.
            self._make_room(0, whole.token)
        facts = {"stream": stream, "chunks": whole.chunks, "rows": whole.rows}
        self._store.write(name, seal({"whole": json.dumps(facts).encode()}, {}))
        self._attempts.see(whole.token)
        self._attempts.note(whole.token, name, 0, self._now_s())
        return True

    def _facts(self, token: str, chunk: int) -> tuple[str, int]:
        """Stream and rows of a chunk."""
        name = f"{token}-{chunk:06d}"
        attempt = self._attempts.get(token)
        if attempt is not None and (known := attempt.facts.get(name)) is not None:
            return known
        facts, _ = unseal(self._store.read(name), self._store.where(name))
        return str(facts.get("stream")), self._rows_in(facts, name)

    def _rows_in(self, facts: Mapping[str, Any], name: str) -> int:
        rows = facts.get("rows")
        if type(rows) is not int:
            raise StateError(f"{self._store.where(name)}: is no chunk", code="state.corrupt")
        return rows

    def _check_whole(self, stream: str, whole: WholeAttempt) -> None:
        name = f"{whole.token}-whole"
        if name not in self._attempts.groups(whole.token):
            raise LinkError(
                f"{whole.token} isn't staged: it was aborted or collected, or this is another gateway",
                hint="run the epoch again",
                code="E_STAGE",
            )
        _, files = unseal(self._store.read(name), self._store.where(name))
        facts = json.loads(bytes(files["whole"]))
        if facts != {"stream": stream, "chunks": whole.chunks, "rows": whole.rows}:
            raise LinkError(f"{whole.token} was staged as {facts}", code="E_STAGE")

    # --- epochs -----------------------------------------------------------------------------------

    @_locked
    def publish(
        self,
        stream: str,
        writer: str,
        origin: str,
        epoch: int,
        wholes: tuple[WholeAttempt, ...],
        *,
        once: bool = False,
        run: str = "",
    ) -> str:
        """The rows of these attempts are rows of the stream from now on, in this order, all or none.

        Returns:
            empty; or, where this epoch was published before, what to say of that: nothing was changed.

        Raises:
            LinkError: an attempt isn't staged (``E_STAGE``); the writer is another's, or this epoch of it
                another write (``E_WRITER``).
            StateError: it couldn't be decided: ask again.
        """
        known = self.books.writer(writer)
        if known is not None:
            if known.stream != stream or (origin and known.origin and known.origin != origin):
                what = "stream" if known.stream != stream else "checkpoint"
                raise LinkError(
                    f"writer {writer!r} has published epoch {known.epoch} of another {what}",
                    hint="its epochs would be taken for those: give this query another option `writer`",
                    code="E_WRITER",
                )
            if epoch <= known.epoch:
                check_again(known, origin, epoch, wholes, run)
                self._let_go(
                    [*(each.token for each in wholes), *self._attempts.before(mark_of(writer), epoch)]
                )
                return f"epoch {epoch} of {writer!r} was published before (the last one is {known.epoch})"
        marks = {f"{mark_of(writer)}-{epoch}-", f"{mark_of(writer)}-x-"}
        for each in wholes:
            if not any(each.token.startswith(mark) for mark in marks):
                raise LinkError(f"{each.token} was staged for another writer or epoch", code="E_STAGE")
            self._check_whole(stream, each)
        if len({each.token for each in wholes}) < len(wholes):
            raise LinkError(f"epoch {epoch} of {writer!r} names an attempt twice", code="E_STAGE")
        line = Published(
            stream=stream,
            writer=writer,
            origin=origin or ("" if known is None else known.origin),
            epoch=epoch,
            wholes=wholes,
            once=once,
            run=run,
        )
        self._write(line)
        self.books.add(line)
        if line.rows:
            self._attempts.publish(each.token for each in wholes)
        self._let_go(self._attempts.before(mark_of(writer), epoch))
        return ""

    @_locked
    def abort(self, writer: str, epoch: int, tokens: Iterable[str]) -> str:
        """Forget attempts of an epoch; one that is published stays.

        Returns:
            empty; or, where it was published, what to say of that.

        Raises:
            LinkError: they are of another writer.
            StateError: files couldn't be removed.
        """
        tokens = list(tokens)
        if any(not token.startswith(mark_of(writer)) for token in tokens):
            raise LinkError(f"attempts of another writer than {writer!r} were named", code="E_STAGE")
        self._let_go(tokens)
        known = self.books.writer(writer)
        if known is not None and epoch <= known.epoch:
            return f"epoch {epoch} of {writer!r} is published, and stays so"
        return ""

    def _let_go(self, tokens: Iterable[str]) -> None:
        """Remove what was staged under these, as far as nothing published needs it."""
        for token in tokens:
            attempt = self._attempts.get(token)
            if attempt is None or self._attempts.is_published(attempt):
                continue
            if self._broken:
                # A record that failed may be on disk all the same, and name this: take it back.
                self._turn()
            # The note first: an attempt with missing chunks must not look whole.
            for name in sorted(attempt.groups, reverse=True):
                self._store.delete(name)
                self._attempts.removed(token, name)

    def _delivered(self, gone: list[WholeAttempt]) -> None:
        tokens = [each.token for each in gone]
        self._attempts.release(tokens)
        self._let_go(tokens)

    @_locked
    def collect(self) -> None:
        """Forget what was staged long ago and never published.

        Raises:
            StateError: files couldn't be removed.
        """
        self._let_go(self._attempts.aged(self._now_s() - self._age_s))

    @_locked
    def drop(self, stream: str, end: int) -> None:
        """Forget a source, with all that was published into it and isn't at its node.

        Its writers are remembered: what they published isn't published again.

        Args:
            end: how many rows were published into it, as the caller knows it.

        Raises:
            StateError: more was published meanwhile; or it couldn't be noted. Ask again.
        """
        if self.books.end(stream) != end:
            raise StateError(f"{stream!r} was written to meanwhile", hint="ask again", code="state.busy")
        if stream in self.books.streams():
            line = Dropped(stream=stream)
            self._write(line)
            self._delivered(self.books.add(line))

    # --- delivery ---------------------------------------------------------------------------------

    def rows_of(self, queued: Queued) -> Iterable[tuple[int, Callable[[], Buffer], str]]:
        """The chunks of an epoch in order: (rows, what reads the payload, where it lies)."""
        for whole in queued.published.wholes:
            for chunk in range(whole.chunks):
                name = f"{whole.token}-{chunk:06d}"
                facts, files = unseal(self._store.read(name), self._store.where(name))
                rows = self._rows_in(facts, name)
                if ROWS not in files:
                    raise StateError(f"{self._store.where(name)}: is no chunk", code="state.corrupt")
                yield rows, lambda files=files: files[ROWS], self._store.where(name)  # type: ignore[misc]

    @_locked
    def delivered(self, stream: str, row: int) -> None:
        """The node holds the rows below durably.

        Raises:
            DataError: more than there are.
            StateError: it couldn't be noted, or files not removed; ask again.
        """
        if row > self.books.end(stream):
            raise DataError(
                f"the node has {row} rows of this gateway in {stream!r}, and it published "
                f"{self.books.end(stream)}",
                hint="the gateway's folder is older than that, or another gateway has its name",
                code="data.ahead",
            )
        queue = self.books.queue(stream)
        if not queue or queue[0].end > row:
            return
        line = DeliveredRecord(stream=stream, row=row)
        self._write(line)
        self._delivered(self.books.add(line))
