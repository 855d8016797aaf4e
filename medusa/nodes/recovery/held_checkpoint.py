"""The secondary's side of a passive standby: the newest checkpoint of the owner, as files in memory.

Nothing runs here of the fragment. If it is to be ours it is opened from what is held, and goes on there. What
is held may be a whole checkpoint and deltas on it, as on a disk: they are put together when it is opened.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from itertools import pairwise
from typing import Any

import msgspec

from medusa.decoders import msgpack_decoder
from medusa.engine.state.checkpoint import DELTAS_MAX, crc32c
from medusa.errors import StateError
from medusa.nodes.fragment.checkpoint_record import LOG, RECORD, FragmentRecord, read_record
from medusa.nodes.fragment.rows_put_out import why_ahead
from medusa.nodes.migration.automaton import MoveEvent, TargetState
from medusa.nodes.migration.standby import Clients, ReaderPosition
from medusa.nodes.migration.state_receiver import Framed, StateReceiver
from medusa.nodes.recovery.checkpoint_shipping import CheckpointManifest, FileFacts, is_state
from medusa.ports import Buffer
from medusa.wire.link.named_subscriptions import is_key
from medusa.wire.messages.move import Piece, Standing, Whole

__all__ = ["CheckpointReceiver"]

AHEAD_US = 3_000_000
"""A checkpoint has rows for so long that nobody has put out, and that is said: nodes tell once a second what
they have."""

_MANIFESTS = msgpack_decoder(CheckpointManifest)


def _unfit(why: str) -> StateError:
    return StateError(why, code="state.base")


class CheckpointReceiver(StateReceiver):
    """One attempt, at a passive secondary: see ``StateReceiver``.

    Attributes:
        shadow: None until the fragment is to be ours.
        held_token: of the owner's checkpoint that is held; 0: none is yet.
        held_us: when that came whole; None: none is yet.
        record: what it says of inputs and outputs.
    """

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.held_token = 0
        self.held_us: int | None = None
        self.record: FragmentRecord | None = None
        self._held: dict[str, Buffer] = {}
        self._manifest = CheckpointManifest({})
        self._clients = self._next_clients = Clients({})
        self._ahead_since_us: int | None = None
        self._said_ahead = False
        self._coming: tuple[int, FragmentRecord] | None = None
        """What the checkpoint says whose last frame has this number; read once, however often it is asked."""

    @property
    def _takes_files(self) -> bool:
        return self.shadow is None

    def _take(self, now_us: int, message: Framed, payload: Buffer | None) -> None:
        if self.shadow is not None:
            return  # It goes on here: what its owner of before still says changes nothing.
        if message.ticket != self.ticket or message.frame != self._frames:
            self._told = -1
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

    def is_ahead(self, now_us: int, put_out: Mapping[str, int]) -> bool:
        """Whether what has come has rows of its inputs that aren't there, as far as is known: it isn't taken
        yet. That is said once it has been so for long, until one comes that is right.

        Args:
            put_out: as ``rows_put_out`` has it.
        """
        if self._coming is None or self._coming[0] != self._frames:
            data = self._files.get(RECORD, self._held.get(RECORD, b""))
            try:
                self._coming = self._frames, read_record(data, where="what comes")
            except StateError:
                return False  # ``receive`` says so.
        if not (why := why_ahead(self._coming[1], put_out)):
            self._ahead_since_us, self._said_ahead = None, False
            return False
        if self._ahead_since_us is None:
            self._ahead_since_us = now_us
        if now_us - self._ahead_since_us >= AHEAD_US and not self._said_ahead:
            self._said_ahead = True
            about = {"fragment": self.spec.name, "owner": self.owner}
            self._outbox.report("warning", "checkpoint refused", why=why, **about)
        return True

    def check_whole(self, message: Whole, payload: Buffer | None) -> None:
        try:
            self._record_of(self._checked(message, payload, self._files)[1])
        except StateError as error:
            raise self._broken_rule(error.message) from None

    def _whole(self, now_us: int, message: Whole, payload: Buffer | None) -> None:
        """Hold it in place of the one before, all at once."""
        came, self._files, self._sizes, self._bytes = self._files, {}, {}, 0
        try:
            manifest, files = self._checked(message, payload, came)
        except StateError as error:
            self._refuse(now_us, error.message)
            return
        record, self._coming = self._record_of(files), None
        self._held, self._manifest, self.held_token, self.record = files, manifest, message.token, record
        self.held_us = now_us
        self._said_held, self._refused = 0 if self.spec.reads_again else message.token, 0
        self._clients = self._next_clients
        self._durable, self._opened, self._told = self._frames, True, -1
        if self.state is TargetState.FILLING:
            self.move(MoveEvent.WHOLE)

    def _checked(
        self, message: Whole, payload: Buffer | None, came: dict[str, bytearray]
    ) -> tuple[CheckpointManifest, dict[str, Buffer]]:
        """What a checkpoint is made of, of what came and what is held.

        Raises:
            RemoteProtocolError: it can't be what the owner has.
            StateError: its deltas don't fit what is held.
        """
        try:
            manifest = _MANIFESTS.decode(payload or b"")
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise self._broken_rule(f"no manifest: {error}"[:300]) from None
        facts = manifest.files
        if message.files != len(facts) or not came.keys() <= facts.keys():
            raise self._broken_rule("the checkpoint isn't whole")
        try:
            self._check_base(message, manifest, came.keys())
        except StateError as error:
            if not manifest.deltas:
                raise self._broken_rule(error.message) from None
            raise
        files: dict[str, Buffer] = {}
        for name, fact in facts.items():
            files[name] = view = memoryview(came[name]) if name in came else self._held[name]
            if name in came and FileFacts(len(came[name]), crc32c(view)) != fact:
                raise self._broken_rule(f"file {name!r} of checkpoint {message.token} isn't what was said")
        return manifest, files

    def _refuse(self, now_us: int, why: str) -> None:
        """Deltas don't fit what is held, which stays; their owner sends all of a checkpoint."""
        self._refused, self._told = self._frames, -1
        self._outbox.report(
            "warning", "delta refused", fragment=self.spec.name, owner=self.owner, why=why[:300]
        )

    def _check_base(self, message: Whole, manifest: CheckpointManifest, came: Set[str]) -> None:
        """What didn't come is kept from the checkpoint that the owner names; deltas stand on that.

        Raises:
            StateError: something doesn't fit what is held.
        """
        token, facts, deltas = message.token, manifest.files, manifest.deltas
        if deltas and manifest.epoch != self.epoch:
            raise _unfit(f"checkpoint {token} is of epoch {manifest.epoch}, and not of {self.epoch}")
        if deltas and manifest.configuration < self._manifest.configuration:
            known = self._manifest.configuration
            raise _unfit(f"checkpoint {token} goes by configuration {manifest.configuration}, before {known}")
        if len(came) < len(facts) and (message.base != self.held_token or not self.held_token):
            raise _unfit(f"checkpoint {token} goes on from {message.base}, and {self.held_token} is held")
        for name in facts.keys() - came:
            if self._manifest.files.get(name) != facts[name]:
                raise _unfit(f"file {name!r} of checkpoint {token} isn't what was said")
        self._check_deltas(token, manifest)

    def _check_deltas(self, token: int, manifest: CheckpointManifest) -> None:
        """They can be put together, by their names, and end with this checkpoint."""
        deltas, held = manifest.deltas, self._manifest.deltas
        new = deltas[len(held) :]
        ends = [(each.base, each.token) for each in new]
        wanted = [*pairwise((self.held_token, *(each.token for each in new)))]
        if deltas and (deltas[: len(held)] != held or not new or ends != wanted or new[-1].token != token):
            raise _unfit(f"checkpoint {token} is made of deltas {ends}, and {self.held_token} is held")
        if len(deltas) > DELTAS_MAX:
            raise _unfit(f"checkpoint {token} is made of {len(deltas)} deltas, more than {DELTAS_MAX}")
        own = {each.key(place) for each in deltas for place in range(len(each.files))}
        if not own <= manifest.files.keys():
            raise _unfit(f"checkpoint {token} lacks files of its deltas")
        names: Set[str] = {name for name in manifest.files if is_state(name)} - own
        nothing = dict.fromkeys(own, b"")
        for each in deltas:
            names = each.files_of(nothing).names_after(names, f"checkpoint {each.token}")

    def _record_of(self, files: dict[str, Buffer]) -> FragmentRecord:
        """It could be opened, as far as that can be told without doing so."""
        try:
            record = read_record(files.get(RECORD, b""), where=f"the checkpoint of node {self.owner!r}")
        except StateError as error:
            raise self._broken_rule(f"the checkpoint can't be used: {error}") from None
        sources = sorted(each.source for each in record.inputs)
        if not self.spec.entries and sources != sorted({*sources} & self._fed_sources):
            raise self._broken_rule(
                f"the checkpoint is of sources {sources}, and not of {sorted(self._fed_sources)}"
            )
        missing = [token for token in record.tokens() if f"{LOG}-{token}" not in files]
        if record.fragment != self.spec.name or missing:
            raise self._broken_rule(f"the checkpoint is of {record.fragment!r}, or lacks output {missing}")
        return record

    @property
    def _fed_sources(self) -> Set[str]:
        """Sources that other fragments feed: one input each."""
        return {feed.source for feed in self.spec.feeds}

    @property
    def could_succeed(self) -> bool:
        return self.held_token > 0 and (self.shadow is None or not self.shadow.failed)

    def open(self, now_us: int) -> None:
        if self.shadow is not None or not self.held_token:
            return
        if self.spec.reads_again and not self.spec.repeats:  # Rows come again, and may be others.
            version = self.spec.stream_version + 1
            self.spec = msgspec.structs.replace(self.spec, stream_version=version)
        deltas = tuple(each.files_of(self._held) for each in self._manifest.deltas)
        own = {each.key(place) for each in self._manifest.deltas for place in range(len(each.files))}
        self._check_sums()
        self._open(now_us, {name: data for name, data in self._held.items() if name not in own}, deltas)
        assert self.shadow is not None
        self._opened = False
        self._held, self._files = {}, {}
        self.shadow.standing(now_us, self._readers())
        self.shadow.held_by(self._clients.holders)

    def _check_sums(self) -> None:
        """What is held is what came: it has been in memory for long."""
        for name, fact in self._manifest.files.items():
            if crc32c(self._held[name]) != fact.crc:
                raise self._broken_rule(
                    f"file {name!r} of checkpoint {self.held_token} was damaged in memory"
                )

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
