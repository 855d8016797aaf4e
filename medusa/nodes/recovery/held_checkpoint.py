"""The secondary's side of a passive standby: the newest whole checkpoint of the owner, as files in memory.

Nothing runs here of the fragment. If it is to be ours it is opened from what is held, and goes on there.
"""

from __future__ import annotations

from typing import Any

import msgspec

from medusa.decoders import msgpack_decoder
from medusa.engine.state.checkpoint import crc32c
from medusa.errors import StateError
from medusa.nodes.fragment.checkpoint_record import LOG, RECORD, FragmentRecord, read_record
from medusa.nodes.migration.automaton import MoveEvent, TargetState
from medusa.nodes.migration.standby import Clients, ReaderPosition
from medusa.nodes.migration.state_receiver import Carried, StateReceiver
from medusa.nodes.recovery.checkpoint_shipping import CheckpointManifest, FileFacts
from medusa.ports import Buffer
from medusa.wire.link.named_subscriptions import is_key
from medusa.wire.messages.move import Piece, Standing, Whole

__all__ = ["CheckpointReceiver"]

_MANIFESTS = msgpack_decoder(CheckpointManifest)


class CheckpointReceiver(StateReceiver):
    """One attempt, at a passive secondary: see ``StateReceiver``.

    Attributes:
        shadow: None until the fragment is to be ours.
        held_token: of the owner's checkpoint that is held; 0: none is yet.
        record: what it says of inputs and outputs.
    """

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.held_token = 0
        self.record: FragmentRecord | None = None
        self._held: dict[str, Buffer] = {}
        self._facts: dict[str, FileFacts] = {}
        self._clients = self._next_clients = Clients({})

    @property
    def _takes_files(self) -> bool:
        return self.shadow is None

    def receive(self, now_us: int, message: Carried, payload: Buffer | None) -> None:
        if self.shadow is not None:
            return  # It goes on here: what its owner of before still says changes nothing.
        if message.ticket != self.ticket or message.frame != self._frames:
            self._told = -1
            self._ack_soon(now_us)
            return
        self._frames += 1
        match message:
            case Piece():
                self._piece(message, payload)
            case Standing():
                self._next_clients = self._clients_of(payload)
            case Whole():
                self._whole(now_us, message, payload)
            case _:
                raise self._broken_rule("a passive secondary is fed nothing")
        self._ack_soon(now_us)

    def _whole(self, now_us: int, message: Whole, payload: Buffer | None) -> None:
        """Hold it in place of the one before, all at once."""
        came, self._files, self._sizes, self._bytes = self._files, {}, {}, 0
        try:
            facts = _MANIFESTS.decode(payload or b"").files
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise self._broken_rule(f"no manifest: {error}"[:300]) from None
        if message.files != len(facts) or not came.keys() <= facts.keys():
            raise self._broken_rule("the checkpoint isn't whole")
        if came.keys() != facts.keys():
            self._check_base(message)
        files: dict[str, Buffer] = {}
        for name, fact in facts.items():
            if name in came:
                files[name] = view = memoryview(came[name])
                fits = FileFacts(len(view), crc32c(view)) == fact
            else:
                files[name], fits = self._held.get(name, b""), self._facts.get(name) == fact
            if not fits:
                raise self._broken_rule(f"file {name!r} of checkpoint {message.token} isn't what was said")
        record = self._record_of(files)
        self._held, self._facts, self.held_token, self.record = files, facts, message.token, record
        self._clients = self._next_clients
        self._durable, self._opened, self._told = self._frames, True, -1
        if self.state is TargetState.FILLING:
            self.move(MoveEvent.WHOLE)

    def _check_base(self, message: Whole) -> None:
        """What didn't come is kept from the checkpoint that the owner names."""
        if message.base != self.held_token or not self.held_token:
            raise self._broken_rule(
                f"checkpoint {message.token} goes on from {message.base}, and {self.held_token} is held"
            )

    def _record_of(self, files: dict[str, Buffer]) -> FragmentRecord:
        """It could be opened, as far as that can be told without doing so."""
        try:
            record = read_record(files.get(RECORD, b""), where=f"the checkpoint of node {self.owner!r}")
        except StateError as error:
            raise self._broken_rule(f"the checkpoint can't be used: {error}") from None
        missing = [token for token in record.tokens() if f"{LOG}-{token}" not in files]
        if record.fragment != self.spec.name or missing:
            raise self._broken_rule(f"the checkpoint is of {record.fragment!r}, or lacks output {missing}")
        return record

    @property
    def could_succeed(self) -> bool:
        return self.held_token > 0 and (self.shadow is None or not self.shadow.failed)

    def open(self, now_us: int) -> None:
        if self.shadow is not None or not self.held_token:
            return
        if self.spec.reads_again and not self.spec.repeats:  # Rows come again, and may be others.
            version = self.spec.stream_version + 1
            self.spec = msgspec.structs.replace(self.spec, stream_version=version)
        self._open(now_us, dict(self._held))
        assert self.shadow is not None
        self._opened = False
        self._held, self._files = {}, {}
        self.shadow.standing(now_us, self._readers())
        self.shadow.held_by(self._clients.holders)

    def _readers(self) -> dict[str, dict[str, ReaderPosition]]:
        """How far they were; a node that was succeeded meanwhile reads no more, and who succeeds it does."""
        found: dict[str, dict[str, ReaderPosition]] = {}
        for sink, known in self._clients.readers.items():
            planned = self.spec.readers.get(sink, ())
            kept = {key: at for key, at in known.items() if at.plain or is_key(key) or key in planned}
            gone = len(kept) < len(known)
            found[sink] = {**dict.fromkeys(planned if gone else (), ReaderPosition(0)), **kept}
        return found

    @property
    def held_bytes(self) -> int:
        """Of the checkpoint that is held, and of what has come of the next one, as its owner says."""
        return self._bytes + sum(memoryview(data).nbytes for data in self._held.values())

    def tick(self, now_us: int) -> None:
        if self.shadow is None:
            super().tick(now_us)

    def wake_at_us(self) -> int | None:
        return super().wake_at_us() if self.shadow is None else None
