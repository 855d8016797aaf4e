"""The target's side of one attempt: takes the checkpoint, follows, and owns the fragment once it says so.

Nothing of it is in the catalog until all was fed that the owner fed. Who restarts before that has nothing,
and says so; who restarts after it owns the fragment.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import msgspec

from medusa.decoders import msgpack_decoder
from medusa.engine.state.checkpoint import crc32c
from medusa.engine.state.delta import DeltaFiles
from medusa.errors import MedusaError, RemoteProtocolError, StateError
from medusa.nodes.fragment.checkpoint_record import LOG, RECORD, read_record
from medusa.nodes.fragment.checkpointing import SavedCheckpoint
from medusa.nodes.migration.automaton import TARGET, MoveEvent, TargetState
from medusa.nodes.migration.fed_together import apart
from medusa.nodes.migration.standby import Clients, StandbyFragment, saved_from
from medusa.nodes.spec.fragment_spec import FragmentSpec
from medusa.ports import Buffer
from medusa.wire.messages.move import Fed, FedTogether, Got, Handover, Piece, Ready, Standing, Whole
from medusa.wire.outbox import CloseFragment, OpenFragment, Outbox

__all__ = ["WINDOW_BYTES", "StateReceiver"]

WINDOW_BYTES = 4 << 20
"""So much may be under way to us in one attempt."""

FILES_MAX = 100_000

AGAIN_US = 300_000
"""What was acknowledged is said again after this, in case it was lost."""

ACK_US = 5_000
"""Frames that were taken in are acknowledged after this at the latest."""

ACK_SECONDARY_US = 40_000
"""The same by a secondary, of frames for whose word no output waits. Each costs its owner a turn; sooner than
the owner would send them again."""

AHEAD_US = 1_000
"""So long after the last acknowledgement the next element is acknowledged as it comes, where output waits for
it; sooner only once it is fed. Too short: under load each costs its owner a turn more; too long: output waits
for a second engine."""

AHEAD_MAX = 8
"""So many elements that the engine has and hasn't fed yet a secondary acknowledges where output waits for its
word: whoever takes over feeds them first. Too few: output waits for a second engine; too many: one whose
engine can't keep up is taken for near, and has that much more in memory."""

_CLIENTS = msgpack_decoder(Clients)

Carried = Piece | Whole | Fed | FedTogether | Standing | Handover

Framed = Piece | Whole | Fed | Standing | Handover
"""As they are numbered."""


class StateReceiver:
    """One attempt.

    Args:
        spec: as it is to run here.
        owner: the node that has the fragment.
        make: makes its mind here from a checkpoint.
        ticket: that the owner is to name.
        secondary: it follows for as long as it can, and takes a checkpoint when its owner does.

    Attributes:
        state: where the automaton stands.
        shadow: what follows; None: the checkpoint isn't whole yet.
        broken: why it can't go on, as code and text; empty: it can.
    """

    def __init__(
        self,
        spec: FragmentSpec,
        *,
        owner: str,
        attempt: int,
        epoch: int,
        coordinator: str,
        ticket: int,
        make: Callable[[FragmentSpec, SavedCheckpoint, str], StandbyFragment],
        outbox: Outbox,
        secondary: bool = False,
    ) -> None:
        self.spec = spec
        self._secondary = secondary
        self._writing = self._covers = self._durable = 0
        """Of the checkpoint of a secondary that is on its way to disk: its token, and how many frames it
        covers; how many the newest one covers that is there."""
        self.owner = owner
        self.attempt = attempt
        self.epoch = epoch
        self.coordinator = coordinator
        self.ticket = ticket
        self.state = TargetState.ABSENT
        self.shadow: StandbyFragment | None = None
        self.broken: tuple[str, str] | None = None
        self.heard_us = 0
        """When the owner last sent something of it."""
        self.token = 0
        """Of the write that says that it is ours."""
        self._said_held = self._refused = 0
        """Of a passive secondary that takes deltas: as ``Got`` has them."""
        self._make = make
        self._outbox = outbox
        self._files: dict[str, bytearray] = {}
        self._sizes: dict[str, int] = {}
        self._bytes = 0
        self._base = 0
        self._opened = False
        self._frames = 0
        """Taken so far, in order."""
        self._running: deque[int] = deque()
        """Frames that the engine is feeding."""
        self._told, self._told_us = -1, 0
        """What was acknowledged last, and when; -1: whatever it was, it is said again."""
        self._ack_at_us: int | None = None
        self._awaited = False
        """Whether a decision is among the frames that weren't acknowledged: output waits for that word."""
        self._unsaid_bytes = 0
        """Of the rows in those frames."""
        self._decided: int | None = None
        self.move(MoveEvent.RECEIVE)

    def move(self, event: MoveEvent) -> bool:
        """Take a step of the automaton; whether there is one."""
        target = TARGET[self.state].get(event)
        if target is None:
            return False
        self.state = target
        return True

    def heard(self, now_us: int) -> None:
        """The owner has sent something of it."""
        self.heard_us = now_us

    def owns_with(self, token: int) -> None:
        """It is ours once this write of the catalog is on disk."""
        self.token = token

    def ready(self) -> None:
        """Say that it may begin."""
        ready = Ready(
            fragment=self.spec.name,
            attempt=self.attempt,
            ticket=self.ticket,
            window=WINDOW_BYTES,
            together=True,
        )
        self._outbox.send(self.owner, ready)

    # --- frames ---------------------------------------------------------------------------------

    def receive(self, now_us: int, message: Carried, payload: Buffer | None) -> None:
        """Take a frame of this attempt.

        Raises:
            RemoteProtocolError: it can't be what the owner has: the attempt is over.
        """
        if isinstance(message, FedTogether):
            for fed, rows in apart(message, payload, peer=self.owner):
                self._take(now_us, fed, rows)
        else:
            self._take(now_us, message, payload)
        self._ack_soon(now_us)

    def _take(self, now_us: int, message: Framed, payload: Buffer | None) -> None:
        """Take one that has a number."""
        self.note_checkpoint()
        if message.ticket != self.ticket or message.frame != self._frames:
            # Sent again, or something before it is missing: the owner hears how far we are.
            self._told = -1
            return
        self._frames += 1
        match message:
            case Piece():
                self._piece(message, payload)
            case Whole():
                self._whole(now_us, message, payload)
            case Fed():
                self._fed(now_us, message, payload)
            case Standing():
                self._stand(now_us, message, payload)
            case Handover():
                self._decided = message.decided
        self.note_checkpoint()

    def _broken_rule(self, text: str, code: str = "E_STATE") -> RemoteProtocolError:
        return RemoteProtocolError(f"fragment {self.spec.name!r}: {text}", peer=self.owner, code=code)

    def _following(self) -> StandbyFragment:
        if self.state is not TargetState.FOLLOWING or self.shadow is None or self._decided is not None:
            raise self._broken_rule("that comes at the wrong time")
        return self.shadow

    @property
    def _takes_files(self) -> bool:
        """Whether a file of a checkpoint may come now."""
        return self.state is TargetState.FILLING

    def _piece(self, message: Piece, payload: Buffer | None) -> None:
        if not self._takes_files:
            raise self._broken_rule("a piece of a file after the last one")
        file = self._files.setdefault(message.file, bytearray())
        if message.file not in self._sizes:
            self._bytes += message.nbytes
        size = self._sizes.setdefault(message.file, message.nbytes)
        data = memoryview(payload or b"").cast("B")
        if len(self._files) > FILES_MAX or (message.offset, message.nbytes) != (len(file), size):
            raise self._broken_rule(f"file {message.file!r} doesn't go on at {message.offset:,}")
        if len(file) + len(data) > size or not (len(data) or size == 0):
            raise self._broken_rule(f"file {message.file!r} is longer than was said")
        if crc32c(data) != message.crc:
            raise self._broken_rule(f"file {message.file!r} is damaged at {message.offset:,}")
        file += data

    def is_next(self, message: Carried) -> bool:
        """Whether a frame of this attempt goes on where the last one ended."""
        frame = message.fed[0].frame if isinstance(message, FedTogether) else message.frame
        return message.ticket == self.ticket and frame == self._frames

    def check_whole(self, message: Whole, payload: Buffer | None) -> None:
        """Whether all of a checkpoint has come that ends with this, as far as that can be told without
        opening it.

        Raises:
            RemoteProtocolError: it hasn't, or it is of another fragment.
        """
        short = [name for name, size in self._sizes.items() if len(self._files[name]) != size]
        if short or message.files != len(self._files):
            raise self._broken_rule("the checkpoint isn't whole")
        try:
            record = read_record(self._files.get(RECORD, b""), where=f"the checkpoint of node {self.owner!r}")
        except StateError as error:
            raise self._broken_rule(f"the checkpoint can't be used: {error}") from None
        if record.fragment != self.spec.name:
            raise self._broken_rule(f"the checkpoint is of {record.fragment!r}")

    def _whole(self, now_us: int, message: Whole, payload: Buffer | None) -> None:
        short = [name for name, size in self._sizes.items() if len(self._files[name]) != size]
        if self.state is not TargetState.FILLING or short or message.files != len(self._files):
            raise self._broken_rule("the checkpoint isn't whole")
        files: dict[str, Buffer] = {name: memoryview(data) for name, data in self._files.items()}
        self._files = {}
        self._open(now_us, files)
        self.move(MoveEvent.WHOLE)

    def _open(self, now_us: int, files: dict[str, Buffer], deltas: tuple[DeltaFiles, ...] = ()) -> None:
        """Have the fragment run here from these files, and what it begins with written to disk.

        Args:
            deltas: on the state that these files bring.
        """
        try:
            record = read_record(files.pop(RECORD, b""), where=f"the checkpoint of node {self.owner!r}")
            logs: dict[int, Buffer] = {}
            for token in record.tokens():
                logs[token] = files.pop(
                    LOG if token == record.token and LOG in files else f"{LOG}-{token}", b""
                )
            for name in (LOG, f"{LOG}-{record.token}"):
                files.pop(name, None)
            if record.fragment != self.spec.name:
                raise StateError(f"it is of fragment {record.fragment!r}", code="state.owner")
            self.shadow = self._make(self.spec, saved_from(record, logs), self.owner)
        except (MedusaError, LookupError, AssertionError, ValueError, OverflowError) as error:
            raise self._broken_rule(f"the checkpoint can't be used: {error}"[:500]) from None
        self._outbox.append(
            OpenFragment(
                fragment=self.spec.name,
                graph=self.spec.graph,
                files=None if self.spec.reads_again else files,
                deltas=deltas,
            )
        )
        self._base = self.shadow.base(now_us)

    def _fed(self, now_us: int, message: Fed, payload: Buffer | None) -> None:
        shadow = self._following()
        self._awaited = self._awaited or shadow.mixed
        self._unsaid_bytes += len(payload or b"")
        if shadow.follow(now_us, message, payload):
            self._running.append(message.frame)

    def _clients_of(self, payload: Buffer | None) -> Clients:
        try:
            return _CLIENTS.decode(payload or b"")
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise self._broken_rule(f"no readers: {error}"[:300]) from None

    def _stand(self, now_us: int, message: Standing, payload: Buffer | None) -> None:
        clients = self._clients_of(payload)
        shadow = self._following()
        shadow.standing(now_us, clients.readers)
        shadow.held_by(clients.holders)
        if self._secondary:
            shadow.let_go(now_us, message.released)
        if message.mark and self._secondary:
            shadow.changed(now_us, True)

    def note_checkpoint(self) -> None:
        """A secondary began a checkpoint: nothing was under way, so it holds all that came."""
        if self._secondary and self.shadow is not None and self.shadow.writing not in (0, self._writing):
            self._writing, self._covers = self.shadow.writing, self._frames

    # --- what the driver says -------------------------------------------------------------------

    def ran(self, now_us: int) -> None:
        """The oldest element was fed."""
        if self._running:
            self._running.popleft()
            self.note_checkpoint()
            if self.done != self._told:  # Else that was said before it was fed.
                self._ack_soon(now_us)

    def persisted(self, now_us: int, token: int, ok: bool, why: str) -> None:
        """A checkpoint of it is on disk, or isn't."""
        if token == self._base:
            self._opened = ok
            self.broken = self.broken or (None if ok else ("E_DISK", why))
            self._told = -1
            self._ack_soon(now_us)
        elif ok and token == self._writing:
            self._durable = self._covers
            self._told = -1
            self._ack_soon(now_us)
        self.note_checkpoint()

    # --- time -----------------------------------------------------------------------------------

    @property
    def done(self) -> int:
        """Frames that the owner is told of: everything in them has been fed, but for what may be
        ``AHEAD_MAX``.

        What the engine has it feeds, in this order and before all that comes after a takeover; or it fails,
        and nothing of the fragment is left here, as if we had died.
        """
        ahead = AHEAD_MAX if self._runs_ahead else 0
        return self._running[ahead] if len(self._running) > ahead else self._frames

    @property
    def _runs_ahead(self) -> bool:
        """Whether what the engine has counts as fed: output waits for our word, and what we began with is on
        our disk."""
        return self._secondary and self._opened and self.shadow is not None and self.shadow.mixed

    @property
    def held_bytes(self) -> int:
        """Of the checkpoint, which is in memory until the fragment runs from it, as its owner says."""
        return 0 if self._opened else self._bytes

    @property
    def caught_up(self) -> bool:
        """It has fed all that the owner ever will, and would find all of it again.

        Raises:
            RemoteProtocolError: the owner counts otherwise.
        """
        shadow = self.shadow
        if self._decided is None or shadow is None or shadow.behind or not self._opened:
            return False
        if shadow.decided.at != self._decided:
            raise self._broken_rule(f"{shadow.decided.at:,} decisions, not {self._decided:,}")
        return shadow.logged_all

    @property
    def could_succeed(self) -> bool:
        """It is whole, and nothing has failed."""
        following = self.state is TargetState.FOLLOWING
        return following and self.shadow is not None and not self.shadow.failed

    def open(self, now_us: int) -> None:
        """It is to be ours: what follows runs already.

        Raises:
            RemoteProtocolError: it can't be opened.
        """

    def rewired(self, now_us: int, spec: FragmentSpec) -> None:
        """What it reads comes from other nodes now, or other nodes read it."""
        self.spec = spec
        if self.shadow is not None:
            self.shadow.rewired(now_us, spec)

    @property
    def on_disk(self) -> bool:
        """What it begins with is on disk, and every decision that it was fed."""
        return self._opened and self.shadow is not None and self.shadow.logged_all

    def tick(self, now_us: int) -> None:
        """Acknowledge what is due."""
        if self._ack_at_us is not None and now_us >= self._ack_at_us:
            self._ack_at_us = now_us + AGAIN_US
            self._told, self._told_us = self.done, now_us
            if self._told == self._frames:
                self._awaited, self._unsaid_bytes = False, 0
            got = Got(
                fragment=self.spec.name,
                attempt=self.attempt,
                ticket=self.ticket,
                frames=self.done,
                opened=self._opened,
                durable=self._durable,
                held=self._said_held,
                refused=self._refused,
            )
            self._outbox.send(self.owner, got)

    def _ack_soon(self, now_us: int) -> None:
        whole = self._secondary and self._awaited and self.done == self._frames
        soon = whole and (not self._running or now_us - self._told_us >= AHEAD_US)
        if self._told < 0 or soon or self.done - self._told >= 8:
            self._ack_at_us = now_us
            self.tick(now_us)
        else:
            hurry = self._awaited or not self._secondary or self._unsaid_bytes >= WINDOW_BYTES // 4
            at_us = now_us + (ACK_US if hurry else ACK_SECONDARY_US)
            self._ack_at_us = min(self._ack_at_us or at_us, at_us)

    def wake_at_us(self) -> int | None:
        """When ``tick`` has work."""
        return self._ack_at_us

    def drop(self) -> None:
        """Nothing of it is left here."""
        self.move(MoveEvent.BROKEN)
        if self.shadow is not None:
            self.shadow.drop("the attempt to move it here is over")  # Nobody's mistake, so no report.
            self._outbox.append(CloseFragment(fragment=self.spec.name))
        self.shadow = None
