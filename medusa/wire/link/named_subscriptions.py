"""Named subscriptions: receivers that go by a name of their own, not by that of their connection. Pure.

A sender knows such a receiver by a *key*, ``owner/name``. The owner is who has the client key (empty
where there are no keys), so one client can't read or acknowledge what is another's. No name of a peer
holds a slash. The key and its position outlive every connection; at most one connection reads under it.
"""

from __future__ import annotations

from dataclasses import dataclass

from medusa.wire.link.automaton import LinkEvent, SenderState
from medusa.wire.link.receiver_views import ReceiverView
from medusa.wire.messages.links import Attach, Refuse
from medusa.wire.outbox import Outbox

__all__ = ["NamedSubscriptions", "Objection", "is_key", "key_of", "objection", "owner_and_name"]

TAKEN = "E_TAKEN"


def key_of(owner: str, name: str) -> str:
    """The key of a named receiver."""
    return f"{owner}/{name}"


def is_key(text: str) -> bool:
    """Whether it is the key of a named receiver, not the name of a peer."""
    return "/" in text


def owner_and_name(key: str) -> tuple[str, str]:
    """What ``key_of`` put together."""
    owner, _, name = key.partition("/")
    return owner, name


@dataclass(frozen=True, slots=True, kw_only=True)
class Objection:
    """Why an attachment under a name is refused."""

    code: str
    text: str
    hint: str


def objection(
    key: str, *, reader: str, is_there: bool, durable: int, peer: str, next_seq: int, resumed: bool
) -> Objection | None:
    """What stands against a connection that wants to read under a known name; None: nothing.

    Args:
        reader: the connection that reads under it now; empty: none.
        is_there: that connection isn't silent.
        durable: rows below it were acknowledged.
        peer, next_seq, resumed: who asks, for which row, and whether it goes on with what it had.
    """
    _, name = owner_and_name(key)
    if reader not in ("", peer) and is_there:
        return Objection(
            code=TAKEN,
            text=f"subscription {name!r} is being read by another program",
            hint="close it there; a program that was killed or cut off is noticed within about a second",
        )
    if resumed and next_seq < durable:
        return Objection(
            code=TAKEN,
            text=f"another program has meanwhile read subscription {name!r} up to row {durable}",
            hint=f"subscribe again: it goes on at row {durable}",
        )
    if not resumed and 0 <= next_seq < durable:
        return Objection(
            code="E_SEQ",
            text=f"rows below {durable} of subscription {name!r} were acknowledged, asked for row {next_seq}",
            hint=f'with from_="now" or "oldest" a subscription that is known goes on at row {durable}; to '
            "begin anew, end it first with unsubscribe",
        )
    return None


class NamedSubscriptions:
    """Which connection reads one stream under which key: one each.

    Args:
        receivers: of the sender, by key; this changes who reads, and removes those that end.
    """

    def __init__(self, stream: str, receivers: dict[str, ReceiverView], outbox: Outbox) -> None:
        self._stream = stream
        self._receivers = receivers
        self._outbox = outbox
        self._keys: dict[str, str] = {}

    def _key(self, peer: str) -> str:
        return self._keys.get(peer, peer)

    def view(self, peer: str) -> ReceiverView | None:
        """The receiver at the end of this connection."""
        return self._receivers.get(self._key(peer))

    def may_read(self, peer: str, key: str, message: Attach) -> bool:
        """Whether this connection may read under a known key; if not, it was told why."""
        view = self._receivers[key]
        why = objection(
            key,
            reader=view.peer,
            is_there=view.state is SenderState.FLOWING,
            durable=view.durable,
            peer=peer,
            next_seq=message.next_seq,
            resumed=message.resumed,
        )
        if why is not None:
            refusal = Refuse(
                code=why.code, text=why.text, hint=why.hint, stream=self._stream, epoch=message.epoch
            )
            self._outbox.send(peer, refusal)
        return why is None

    def take(self, peer: str, key: str, view: ReceiverView) -> None:
        """The connection reads under this key from now on, and under no other."""
        before = self._key(peer)
        if before != key and (other := self._receivers.get(before)) is not None:
            if other.named:
                other.step(LinkEvent.DETACH)
                self.vacate(other)
            elif other.plain:
                del self._receivers[before]
        self._keys.pop(view.peer, None)
        view.is_read_by(peer)
        if view.named:
            self._keys[peer] = key

    def vacate(self, view: ReceiverView) -> bool:
        """Whether it has a name; then, where it is detached, nobody reads under that any more."""
        if view.named and view.state is SenderState.DETACHED:
            self._keys.pop(view.peer, None)
            view.is_read_by("")
        return view.named

    def end(self, key: str) -> None:
        """Nothing is known of it any more."""
        if (view := self._receivers.pop(key, None)) is not None:
            self._keys.pop(view.peer, None)
