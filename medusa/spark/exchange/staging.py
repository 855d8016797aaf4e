"""Rows that Spark writes, from the attempt of a task to the stream: staged, published by epochs, delivered.

    w<writer>-<epoch>-<partition>-<attempt>-000000     a chunk of rows: a group of the store
    w<writer>-<epoch>-<partition>-<attempt>-whole      says how many chunks there are, once all are
    decisions-000000001.log                            the journal: an epoch is published by one record of it

A chunk is on disk when ``stage`` returns. What is staged belongs to nobody until ``publish``, whose record
decides; from then on its rows are numbered behind all that were published into the stream before, and no
abort touches them. What no record names is garbage: of aborted epochs, of attempts that died.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterable
from typing import Protocol

from medusa.engine.checkpoint import seal, unseal
from medusa.errors import DataError, FullError, LinkError, StateError
from medusa.ports import Buffer, Journal, Store
from medusa.spark.exchange.books import Books, Delivered, Dropped, Line, Published, Queued, pack, unpack
from medusa.spark.exchange.requests import Whole, mark_of
from medusa.units import size_text

__all__ = ["Staging"]

JOURNAL_BYTES = 1 << 20
"""From here on a new journal is begun."""

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


class Staging:
    """All that was written to this gateway and isn't at its nodes.

    Args:
        store, journal: one folder, of which nobody else takes anything away.
        bytes_max: of rows that are staged or on their way; with that it is full.
        now_s: seconds that never run back.
        age_s: what was staged so long ago and isn't published is forgotten.

    Attributes:
        lock: held by whoever calls, where there are several threads.

    Raises:
        StateError: what is there can't be read.
    """

    def __init__(
        self, store: Sized, journal: Journal, *, bytes_max: int, now_s: Callable[[], float], age_s: float
    ) -> None:
        self._store, self._journal = store, journal
        self._bytes_max, self._now_s, self._age_s = bytes_max, now_s, age_s
        self._groups: dict[str, dict[str, int]] = {}
        """Token -> group -> bytes of rows."""
        self._bytes = self._count = 0
        self._since_s: dict[str, float] = {}
        self._broken = False
        self.lock = threading.RLock()
        self.books = Books()
        self._number = self._length = 0
        self._open()

    def _open(self) -> None:
        for name in self._store.names():
            if found := _GROUP.fullmatch(name):
                self._note(found[1], name, self._store.size(name, ROWS))
        numbers = self._journal.numbers()
        for number in reversed(numbers):
            lines, _ = unpack(self._journal.read(number))
            if lines:  # Else it was just being begun, and the one before still counts.
                for line in lines:
                    self.books.add(line)
                break
        self._number = numbers[-1] if numbers else 0
        self._turn()
        for each in self.books.writers():
            self._let_go(self._before(each.writer, each.epoch))

    def _turn(self) -> None:
        """Begin a journal with all that is known; then the earlier ones may go."""
        number, data = self._number + 1, pack(self.books.balance())
        self._journal.remove(number)
        self._journal.append(number, data)
        self._journal.sync(number)
        self._number, self._length, self._broken = number, len(data), False
        for each in self._journal.numbers():
            if each < number:
                self._journal.remove(each)

    def _write(self, line: Line) -> None:
        """One record, durably."""
        if self._broken or self._length >= JOURNAL_BYTES:
            # After a write that failed nobody knows what the journal holds: a new one says what counts.
            self._turn()
        data = pack(line)
        self._broken = True
        self._journal.append(self._number, data)
        self._journal.sync(self._number)
        self._broken = False
        self._length += len(data)

    # --- staging ----------------------------------------------------------------------------------

    @property
    def nbytes(self) -> int:
        """Of rows that are staged or on their way."""
        return self._bytes

    @property
    def unpublished_bytes(self) -> int:
        """Of these, of attempts that no epoch has named yet."""
        needed = set(self.books.tokens())
        return sum(sum(groups.values()) for token, groups in self._groups.items() if token not in needed)

    @property
    def bytes_max(self) -> int:
        """With so many it is full."""
        return self._bytes_max

    def stage(self, stream: str, token: str, chunk: int, rows: int, payload: Buffer) -> bool:
        """Keep a chunk.

        Returns:
            whether it is new.

        Raises:
            FullError: there is no room until rows are delivered.
            StateError: it couldn't be written.
        """
        name = f"{token}-{chunk:06d}"
        if name in self._groups.get(token, ()):
            return False
        nbytes = memoryview(payload).nbytes
        self._make_room(nbytes, token)
        self._store.write(name, seal({ROWS: payload}, {"stream": stream, "rows": rows}))
        self._note(token, name, nbytes)
        return True

    def _make_room(self, nbytes: int, token: str) -> None:
        for make in (self.collect, lambda: self._let_go(self._rivals(token)), None):
            if self._bytes + nbytes <= self._bytes_max and self._count < GROUPS_MAX:
                return
            if make is not None:
                make()
        raise FullError(
            f"the gateway holds {size_text(self._bytes)} that no node has taken yet",
            hint="it goes on once the nodes take more; `stage` says how much it may hold, and "
            "`medusa gateway status` shows what keeps it",
        )

    def _rivals(self, token: str) -> list[str]:
        """Other attempts of the same task: mostly of a driver that died, whose work this one does again."""
        task = token.rpartition("-")[0] + "-"
        return [each for each in self._groups if each.startswith(task) and each != token]

    def _note(self, token: str, name: str, nbytes: int) -> None:
        self._groups.setdefault(token, {})[name] = nbytes
        self._bytes += nbytes
        self._count += 1
        self._since_s.setdefault(token, self._now_s())

    def seal(self, stream: str, whole: Whole) -> bool:
        """An attempt is complete.

        Returns:
            whether that is new.

        Raises:
            LinkError: a chunk isn't here (``E_STAGE``).
            StateError: it couldn't be noted.
        """
        name = f"{whole.token}-whole"
        groups = self._groups.get(whole.token, {})
        if name in groups:
            self._check_whole(stream, whole)
            return False
        if missing := [n for n in range(whole.chunks) if f"{whole.token}-{n:06d}" not in groups]:
            raise LinkError(
                f"chunk {missing[0]} of {whole.token} isn't here: it was collected, or the folder is another",
                hint="run the task again",
                code="E_STAGE",
            )
        if not whole.chunks:  # Else its chunks were let in.
            self._make_room(0, whole.token)
        facts = {"stream": stream, "chunks": whole.chunks, "rows": whole.rows}
        self._store.write(name, seal({"whole": json.dumps(facts).encode()}, {}))
        self._note(whole.token, name, 0)
        return True

    def _check_whole(self, stream: str, whole: Whole) -> None:
        name = f"{whole.token}-whole"
        if name not in self._groups.get(whole.token, ()):
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

    def publish(
        self,
        stream: str,
        writer: str,
        origin: str,
        epoch: int,
        wholes: tuple[Whole, ...],
        *,
        once: bool = False,
    ) -> str:
        """The rows of these attempts are rows of the stream from now on, in this order, all or none.

        Returns:
            empty; or, where this epoch was published before, what to say of that: nothing was changed.

        Raises:
            LinkError: an attempt isn't staged (``E_STAGE``), or the writer is another's (``E_WRITER``).
            StateError: it couldn't be decided: ask again.
        """
        known = self.books.writer(writer)
        if known is not None:
            if (known.stream, known.origin) != (stream, origin):
                what = "stream" if known.stream != stream else "checkpoint"
                raise LinkError(
                    f"writer {writer!r} has published epoch {known.epoch} of another {what}",
                    hint="its epochs would be taken for those: give this query another option `writer`",
                    code="E_WRITER",
                )
            if epoch <= known.epoch:
                self._let_go([*(each.token for each in wholes), *self._before(writer, epoch)])
                return f"epoch {epoch} of {writer!r} was published before (the last one is {known.epoch})"
        marks = {f"{mark_of(writer)}-{epoch}-", f"{mark_of(writer)}-x-"}
        for each in wholes:
            if not any(each.token.startswith(mark) for mark in marks):
                raise LinkError(f"{each.token} was staged for another writer or epoch", code="E_STAGE")
            self._check_whole(stream, each)
        if len({each.token for each in wholes}) < len(wholes):
            raise LinkError(f"epoch {epoch} of {writer!r} names an attempt twice", code="E_STAGE")
        line = Published(stream=stream, writer=writer, origin=origin, epoch=epoch, wholes=wholes, once=once)
        self._write(line)
        self.books.add(line)
        self._let_go(self._before(writer, epoch))
        return ""

    def _before(self, writer: str, epoch: int) -> list[str]:
        """Attempts of this writer that can't be published any more."""
        found = [_GROUP.fullmatch(f"{token}-whole") for token in self._groups]
        mine = [each for each in found if each is not None and each[2] == mark_of(writer)]
        return [each[1] for each in mine if each[3] != "x" and int(each[3]) <= epoch]

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
        needed = set(self.books.tokens())
        for token in [each for each in tokens if each in self._groups and each not in needed]:
            if self._broken:
                # A record that failed may be on disk all the same, and name this: take it back.
                self._turn()
            groups = self._groups.get(token, {})
            # The note first: an attempt with missing chunks must not look whole.
            for name in sorted(groups, reverse=True):
                self._store.delete(name)
                self._bytes -= groups.pop(name)
                self._count -= 1
            self._groups.pop(token, None)
            self._since_s.pop(token, None)

    def collect(self) -> None:
        """Forget what was staged long ago and never published.

        Raises:
            StateError: files couldn't be removed.
        """
        now_s = self._now_s()
        self._let_go([token for token, since_s in self._since_s.items() if now_s - since_s > self._age_s])

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
            self._let_go([each.token for each in self.books.add(line)])

    # --- delivery ---------------------------------------------------------------------------------

    def rows_of(self, queued: Queued) -> Iterable[tuple[int, Callable[[], Buffer], str]]:
        """The chunks of an epoch in order: (rows, what reads the payload, where it lies)."""
        for whole in queued.published.wholes:
            for chunk in range(whole.chunks):
                name = f"{whole.token}-{chunk:06d}"
                facts, files = unseal(self._store.read(name), self._store.where(name))
                rows = facts.get("rows")
                if type(rows) is not int or ROWS not in files:
                    raise StateError(f"{self._store.where(name)}: is no chunk", code="state.corrupt")
                yield rows, lambda files=files: files[ROWS], self._store.where(name)  # type: ignore[misc]

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
        line = Delivered(stream=stream, row=row)
        self._write(line)
        gone = self.books.add(line)
        self._let_go([each.token for each in gone])
