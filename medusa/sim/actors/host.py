"""Drives a mind in virtual time, as ``medusa.runtime`` drives it in real time.

The host owns what a mind may not touch: the clock, the network, the disk, the engine. It takes the
outbox after each call and does what it says, in order. A crash throws the mind away; the disk
stays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from medusa.engine.state.checkpoint import seal
from medusa.errors import RemoteProtocolError
from medusa.ports import Buffer
from medusa.sim.world.disk import Disk
from medusa.sim.world.machine import Machine
from medusa.sim.world.network import Network
from medusa.sim.world.virtual_time import World
from medusa.wire.codec import decode_frame, encode_frame
from medusa.wire.messages import Message
from medusa.wire.outbox import Effect, Outbox, Persist, ReportLine, RunFragment, Send, WakeAt

__all__ = ["Host", "Mind"]

GROUPS_KEPT = 2


class Mind(Protocol):
    """What a host drives. All times are virtual microseconds."""

    outbox: Outbox

    def start(self, now_us: int) -> None:
        """Begin a life."""

    def receive(self, now_us: int, peer: str, message: Message, payload: Buffer | None) -> None:
        """A frame came, checked against its struct."""

    def tick(self, now_us: int) -> None:
        """The time of the last ``WakeAt`` has come."""

    def persisted(self, now_us: int, token: int, ok: bool) -> None:
        """A ``Persist`` ended."""


class Host(Machine):
    """A machine whose mind needs no engine.

    Args:
        make: builds a mind from the disk and the number of this life, counted from 1.
        sync_us: what a synced write takes.
        watch: called after every event of this host.
    """

    def __init__(
        self,
        world: World,
        network: Network,
        name: str,
        make: Callable[[Disk, int], Mind],
        *,
        sync_us: int = 1000,
        watch: Callable[[Host], None] = lambda host: None,
    ) -> None:
        super().__init__(world, network, name)
        self.mind: Mind | None = None
        self.refused = 0
        """Frames that broke a rule."""
        self.run_fragment: Callable[[int, RunFragment], None] | None = None
        self._make = make
        self._sync_us = sync_us
        self._watch = watch
        self._wake_at_us: int | None = None
        self._waiting: list[Send] = []
        self._tokens: list[int] = []

    # --- life ---------------------------------------------------------------------------------

    @property
    def alive(self) -> bool:
        return self.mind is not None

    def start(self) -> None:
        assert self.mind is None, f"{self.name} is alive"
        self.lives += 1
        self.world.trace(self.name, f"starts, life {self.lives}")
        mind = self.mind = self._make(self.disk, self.lives)
        self._do(lambda: mind.start(self.clock.monotonic_us()))

    def crash(self, unsynced: str = "lost", *, flushed: bool = False) -> None:
        if self.mind is None:
            return
        told = f", a write is {unsynced}" if self.disk.writing and unsynced != "lost" else ""
        self.world.trace(self.name, f"crashes{told}")
        self.mind = None
        self.disk.crash(unsynced)
        self.network.forget(self.name, flushed=flushed)
        self._wake_at_us = None
        self._waiting.clear()
        self._tokens.clear()
        self._paused = None

    # --- events ---------------------------------------------------------------------------------

    def deliver(self, source: str, frames: list[Buffer]) -> None:
        """A frame arrived."""

        def call() -> None:
            assert self.mind is not None
            message, payload = decode_frame(frames, peer=source)
            self.mind.receive(self.clock.monotonic_us(), source, message, payload)

        self.in_this_life(lambda: self._do(call))()

    def call(self, action: Callable[[int], None]) -> None:
        """Something from outside happens to the mind: it is given the time."""
        self.in_this_life(lambda: self._do(lambda: action(self.clock.monotonic_us())))()

    def _do(self, call: Callable[[], None]) -> None:
        try:
            call()
        except RemoteProtocolError as error:
            self.refused += 1
            self.world.trace(self.name, f"refuses a frame: {error.code} {error}")
        while self.mind is not None and (effects := self.mind.outbox.take()):
            for effect in effects:
                self._perform(effect)
        self._watch(self)

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Send():
                self._send(effect)
            case WakeAt():
                self._wake(effect.at_us)
            case Persist():
                self._persist(effect)
            case RunFragment():
                assert self.run_fragment is not None, f"{self.name} runs no fragments"
                self.run_fragment(self.world.now_us, effect)
            case ReportLine():
                fields = " ".join(f"{key}={value}" for key, value in effect.fields.items())
                self.world.trace(self.name, f"{effect.level}: {effect.what} {fields}")
            case _:
                raise AssertionError(f"unknown effect {effect!r}")

    def _send(self, effect: Send) -> None:
        if effect.after is not None and effect.after in self._tokens:
            self._waiting.append(effect)
            return
        frames = encode_frame(effect.message, effect.payload)
        self.network.send(self.name, effect.peer, frames)

    def _wake(self, at_us: int) -> None:
        at_us = self.clock.world_us(at_us)
        if self._wake_at_us is not None and self._wake_at_us <= at_us:
            return  # It wakes earlier anyway, and then says again when next.
        self._wake_at_us = at_us

        def wake() -> None:
            if self._wake_at_us == at_us and self.mind is not None:
                self._wake_at_us = None
                mind = self.mind
                self._do(lambda: mind.tick(self.clock.monotonic_us()))

        self.world.at(at_us, self.in_this_life(wake))

    def _persist(self, effect: Persist) -> None:
        """Take the state now, sync later: what happens between is not in it."""
        name = f"{effect.fragment}-{self.lives:06d}-{effect.token:012d}"
        self.disk.begin(name, seal(effect.files, {"token": effect.token}))
        self._tokens.append(effect.token)
        self.world.after(self._sync_us * self.slowness, self.in_this_life(lambda: self._synced(effect, name)))

    def _synced(self, effect: Persist, name: str) -> None:
        ok = self.disk.sync(name)
        if ok:
            old = [other for other in self.disk.names() if other.startswith(f"{effect.fragment}-")]
            for other in old[:-GROUPS_KEPT]:
                self.disk.delete(other)
        self.world.trace(self.name, f"checkpoint {effect.token} {'synced' if ok else 'failed'}")
        self._released(effect.token, ok)
        mind = self.mind
        assert mind is not None
        self._do(lambda: mind.persisted(self.clock.monotonic_us(), effect.token, ok))

    def _released(self, token: int, ok: bool) -> None:
        self._tokens.remove(token)
        ready = [send for send in self._waiting if send.after == token]
        self._waiting = [send for send in self._waiting if send.after != token]
        for send in ready if ok else []:
            self.network.send(self.name, send.peer, encode_frame(send.message, send.payload))
