"""Is the peer there, and is it still the same one? Pure: no IO, no clock.

    SILENT --Hello--> UP --nothing for timeout_us--> SILENT
                      UP --Hello of a new incarnation--> UP (restarted)

Either side may be the one that calls. A caller repeats its ``Hello`` until it is answered.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from msgspec.structs import replace

from medusa.errors import LocalProtocolError, RemoteProtocolError
from medusa.wire.link.automaton import LinkEvent
from medusa.wire.messages import Message
from medusa.wire.messages.links import Heartbeat, Hello, Refuse
from medusa.wire.outbox import Outbox

__all__ = ["EARLIER", "PROMPT", "SESSION", "PeerSession", "PeerState", "SessionSettings", "check_version"]


EARLIER = "E_EARLIER"
"""We have heard of a later life of the node that says ``Hello``: what it says doesn't count."""


class PeerState(Enum):
    """Of one peer as we see it."""

    SILENT = "silent"
    UP = "up"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSettings:
    """Knobs of liveness."""

    heartbeat_us: int = 100_000
    """A heartbeat goes out this often. Too small: noise; too large: cuts are noticed late."""

    timeout_us: int = 300_000
    """Nothing heard for this long: silent. Too small: a busy peer counts as gone, and rows are
    resent; too large: what is sent into a cut meanwhile is sent in vain."""

    hello_us: int = 200_000
    """A silent peer that we call hears our ``Hello`` this often."""

    def __post_init__(self) -> None:
        if not 0 < self.heartbeat_us < self.timeout_us or self.hello_us < 1:
            raise LocalProtocolError(
                f"heartbeat_us {self.heartbeat_us}, timeout_us {self.timeout_us}",
                hint="the timeout is longer than the heartbeat, best three times",
            )


SESSION = SessionSettings(heartbeat_us=200_000, timeout_us=1_000_000, hello_us=200_000)
"""For lines as slow and lossy as those of the simulator."""

PROMPT = SessionSettings(heartbeat_us=100_000, timeout_us=700_000, hello_us=200_000)
"""Of processes: notices a cut and a process that hangs. ZeroMQ's own heartbeats are off: docs/nodes.md."""


def check_version(ours: Hello, theirs: Hello, peer: str = "") -> int:
    """The version of the protocol that two speakers have in common.

    Raises:
        RemoteProtocolError: none (``E_VERSION``).
    """
    if not (version := ours.common_version(theirs)):
        raise RemoteProtocolError(
            f"speaks {theirs.versions}, we speak {ours.versions.partition(' ')[2]}",
            peer=peer,
            code="E_VERSION",
            hint="install the same version of Medusa on both",
        )
    return version


class PeerSession:
    """One peer.

    Args:
        me: name, incarnation and kind that we say ``Hello`` with.
        peer: the name it must have.
        calls: we call it, and again while it is silent; otherwise it calls us.

    Attributes:
        version: of the protocol, that both speak; 0: it hasn't said ``Hello`` yet.
        told_earlier: what the peer hears since it seems to be an earlier life of itself; None: it doesn't.
    """

    def __init__(
        self, me: Hello, peer: str, *, outbox: Outbox, settings: SessionSettings | None = None, calls: bool
    ) -> None:
        self.peer = peer
        self.state = PeerState.SILENT
        self.incarnation: int | None = None
        self.forgets = False
        self.version = 0
        self._address = ""
        self.settings = settings or SessionSettings()
        self._me = me
        self._outbox = outbox
        self._calls = calls
        self.told_earlier: Refuse | None = None
        self._heard_at_us = self._beat_at_us = 0
        self._unheard_since_us: int | None = None
        """Since when it asks who we are although it is there: what we say doesn't reach it."""
        self._spoke_at_us: int | None = None

    @property
    def broken_since_us(self) -> int | None:
        """Since when it isn't heard, or it doesn't hear us; None: all is well, or it never came."""
        if self.incarnation is None:
            return None
        return self._heard_at_us if self.state is PeerState.SILENT else self._unheard_since_us

    @property
    def heard_at_us(self) -> int | None:
        """When it was heard last; None: it never was."""
        return None if self.incarnation is None else self._heard_at_us

    def listens_at(self, address: str) -> None:
        """Where we listen; said with each ``Hello``."""
        self._address = address

    def receive(self, now_us: int, message: Message) -> LinkEvent | None:
        """Take any message of the peer; what it means for its links (``PEER_...``), if anything.

        Only ``Hello`` and ``Heartbeat`` are used up here. Links must hear of the event before they
        get the message.

        Raises:
            RemoteProtocolError: another version (``E_VERSION``) or name (``E_IDENTITY``). Nothing changed.
        """
        if isinstance(message, Hello):
            return self._hello(now_us, message)
        known = not isinstance(message, Heartbeat) or message.incarnation == self.incarnation
        if self.incarnation is None or not known:
            # It speaks before we know who it is, or as somebody else: ask.
            if self._spoke_at_us is None or now_us - self._spoke_at_us >= self.settings.hello_us:
                self._say_hello(now_us, answer=True)
            return None
        self._heard_at_us = now_us
        if isinstance(message, Heartbeat):  # It says so to who it hears.
            self._beat_at_us, self._unheard_since_us = now_us, None
        if self.state is PeerState.UP:
            return None
        self.state = PeerState.UP
        return LinkEvent.PEER_UP

    def _hello(self, now_us: int, message: Hello) -> LinkEvent | None:
        version = check_version(self._me, message, self.peer)
        if message.node != self.peer:
            raise RemoteProtocolError(
                f"calls itself {message.node!r}", peer=self.peer, code="E_IDENTITY", hint="check addresses"
            )
        if self.is_earlier(message):
            self._older(message)
            return None  # Left over from the life before.
        if message.answer:
            self._say_hello(now_us, answer=False)
        self.forgets = message.memory
        self.version = version
        before, self.incarnation = self.incarnation, message.incarnation
        was, self.state = self.state, PeerState.UP
        self._heard_at_us = now_us
        asks = message.answer and was is PeerState.UP and before == message.incarnation
        if not asks or self._beat_at_us == 0:
            self._beat_at_us, self._unheard_since_us = now_us, None
        elif self._unheard_since_us is None:
            self._unheard_since_us = self._beat_at_us
        if before is not None and before != message.incarnation:
            return LinkEvent.PEER_RESTARTED
        return LinkEvent.PEER_UP if was is PeerState.SILENT else None

    def is_earlier(self, hello: Hello) -> bool:
        """Whether the peer has said ``Hello`` in a later life already."""
        return self.incarnation is not None and hello.incarnation < self.incarnation

    def _older(self, message: Hello) -> None:
        """While the later life is there, a word of an earlier one was under way. When it isn't, it
        may be the peer itself, counting its lives anew; said once, to it too.

        One that calls us hears it from the driver: only that knows the connection by which it does.
        """
        if self.state is PeerState.UP or self.told_earlier is not None:
            return
        self.told_earlier = told = Refuse(
            code=EARLIER,
            text=f"node {self._me.node!r} ignores this as an earlier life of {self.peer!r}: it says life "
            f"{message.incarnation}, and was in life {self.incarnation} before",
            hint=f"set the clock of {self.peer} right, and start it again; or start {self._me.node} again",
        )
        if self._calls:
            self._outbox.send(self.peer, told)
        self._outbox.report(
            "warning",
            "peer of an earlier life ignored",
            peer=self.peer,
            incarnation=message.incarnation,
            known=self.incarnation or 0,
            hint="if its data folder was lost and its clock set back: set its clock right and start it "
            "again, or start this node again",
        )

    def lost(self) -> LinkEvent | None:
        """The driver saw the connection break: silent at once, without the timeout."""
        if self.state is PeerState.SILENT:
            return None
        self.state = PeerState.SILENT
        return LinkEvent.PEER_DOWN

    def is_overdue(self, now_us: int) -> bool:
        """It has been silent for too long, and that wasn't noticed yet."""
        return self.state is PeerState.UP and now_us - self._heard_at_us >= self.settings.timeout_us

    def look(self, now_us: int) -> LinkEvent | None:
        """``PEER_DOWN`` when the peer has been silent for too long.

        Who stood still itself asks before it takes what has come meanwhile: that would hide the silence.
        """
        if self.is_overdue(now_us):
            self.state = PeerState.SILENT
            return LinkEvent.PEER_DOWN
        return None

    def tick(self, now_us: int) -> LinkEvent | None:
        """The same, and speak when due."""
        event = self.look(now_us)
        if now_us >= self._speak_at_us(now_us):
            if self.state is PeerState.UP:
                self._outbox.send(self.peer, Heartbeat(incarnation=self._me.incarnation))
                self._spoke_at_us = now_us
            elif self._calls:
                self._say_hello(now_us, answer=True)
        return event

    def _say_hello(self, now_us: int, *, answer: bool) -> None:
        self._spoke_at_us = now_us
        self._outbox.send(self.peer, replace(self._me, answer=answer, address=self._address))

    def _speak_at_us(self, now_us: int) -> int:
        if self._spoke_at_us is None:
            return now_us
        every = self.settings.heartbeat_us if self.state is PeerState.UP else self.settings.hello_us
        return self._spoke_at_us + every

    def wake_at_us(self, now_us: int) -> int | None:
        """When ``tick`` has work."""
        if self.state is PeerState.SILENT:
            return self._speak_at_us(now_us) if self._calls else None
        return min(self._speak_at_us(now_us), self._heard_at_us + self.settings.timeout_us)
