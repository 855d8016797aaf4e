"""Named subscriptions of one fragment's streams: made, ended, and acknowledged durably. No IO.

    Attach(name) ── known? ──> sender: rows from the first not acknowledged
         │ no
         └── its place is noted ── a checkpoint holds it ──> the same

A name is answered only once a checkpoint holds it, so a program that was told so finds its rows
whatever dies afterwards. What it acknowledges is durable with the next checkpoint: if the node dies
before, those rows come again, with the same numbers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from medusa.errors import LinkError
from medusa.nodes.fragment.outputs import FragmentOutput
from medusa.query.suggest import did_you_mean
from medusa.wire.link.automaton import SenderState
from medusa.wire.link.named_subscriptions import TAKEN, is_key, key_of, owner_and_name
from medusa.wire.messages.commands import Forget, Reply
from medusa.wire.messages.links import Ack, Attach, Detach, Refuse
from medusa.wire.outbox import Outbox

__all__ = ["NAMED_PER_OWNER", "NAMED_PER_STREAM", "Subscribers"]

NAMED_PER_STREAM = 100
"""Named subscriptions of one stream: with each ack each of them is looked at."""

OWNER_PER_STREAM = 50
"""Of those, the ones of one client key: no key takes the places of all others."""

NAMED_PER_OWNER = 1000
"""Named subscriptions of one client key at one node; without keys, of all clients together."""

ANSWERS_KEPT = 1000
"""Answers to ``Forget`` that are remembered, since a client whose answer was lost asks again."""


@dataclass(slots=True)
class _Waiting:
    """What is done once a checkpoint holds it.

    Attributes:
        token: of the checkpoint under way that does; 0: none yet.
        peer: who is answered; empty: it has gone.
        message: a new name to attach, or one that was ended.
    """

    key: str
    sink: str
    peer: str
    message: Attach | Forget
    token: int = 0


class Subscribers:
    """Who reads the outputs of a fragment.

    Args:
        changed: called with (now, whether soon) where there is something that a checkpoint should hold.
    """

    def __init__(
        self, outputs: Mapping[str, FragmentOutput], *, outbox: Outbox, changed: Callable[[int, bool], None]
    ) -> None:
        self._outputs = outputs
        self._outbox = outbox
        self._changed = changed
        self._waiting: list[_Waiting] = []
        self._answered: deque[tuple[str, int]] = deque(maxlen=ANSWERS_KEPT)

    def count(self, owner: str) -> int:
        """Named subscriptions of this owner."""
        keys = (key for output in self._outputs.values() for key in output.sender.receivers)
        return sum(is_key(key) and owner_and_name(key)[0] == owner for key in keys)

    # --- messages -----------------------------------------------------------------------------

    def receive(
        self, now_us: int, sink: str, peer: str, message: Attach | Ack | Detach, *, owner: str, others: int
    ) -> None:
        """Take one message of a reader.

        Args:
            owner: who has its key.
            others: named subscriptions of that owner at this node.

        Raises:
            RemoteProtocolError: it claims what can't be.
            LinkError: there are too many names (``E_LIMIT``).
        """
        if isinstance(message, Attach) and message.name:
            self._attach(now_us, sink, peer, message, key_of(owner, message.name), others)
            return
        sender = self._outputs[sink].sender
        for each in self._waiting:
            if isinstance(message, Detach) and (each.sink, each.peer) == (sink, peer):
                each.peer = ""
        view = sender.seats.view(peer)
        before = view.durable if view is not None else 0
        sender.receive(now_us, peer, message)
        if view is not None and view.named and view.durable > before:
            self._changed(now_us, False)

    def _attach(self, now_us: int, sink: str, peer: str, message: Attach, key: str, others: int) -> None:
        sender = self._outputs[sink].sender
        waiting = next((e for e in self._waiting if e.key == key and e.sink == sink), None)
        if waiting is not None and (waiting.peer not in ("", peer) or isinstance(waiting.message, Forget)):
            text = f"subscription {message.name!r} is just being made or ended by another program"
            refusal = Refuse(code=TAKEN, text=text, stream=message.stream, epoch=message.epoch)
            self._outbox.send(peer, refusal)
        elif waiting is not None:
            if sender.begin_at(peer, message) is not None:
                waiting.peer, waiting.message = peer, message
        elif (view := sender.receivers.get(key)) is not None:
            before = view.durable
            sender.receive(now_us, peer, message, key=key)
            if view.durable > before:
                self._changed(now_us, False)
        elif message.known:
            text = f"stream {message.stream!r} has no named subscription {message.name!r} of this client"
            hint = "it was ended, or the stream was removed and defined anew since"
            refusal = Refuse(code="E_NAME", text=text, hint=hint, stream=message.stream, epoch=message.epoch)
            self._outbox.send(peer, refusal)
        else:
            self._check_room(sink, owner_and_name(key)[0], others)
            begin = sender.begin_at(peer, message)
            if begin is not None:
                sender.expect(key, begin)
                self._waiting.append(_Waiting(key, sink, peer, message))
                self._changed(now_us, True)

    def _check_room(self, sink: str, owner: str, others: int) -> None:
        stream = self._outputs[sink].stream
        owners = [owner_and_name(key)[0] for key in self._outputs[sink].sender.receivers if is_key(key)]
        if len(owners) >= NAMED_PER_STREAM:
            full = f"stream {stream!r} has {NAMED_PER_STREAM} named subscriptions already"
        elif owner and owners.count(owner) >= OWNER_PER_STREAM:
            full = f"stream {stream!r} has {OWNER_PER_STREAM} named subscriptions of this client already"
        elif others >= NAMED_PER_OWNER:
            full = f"this client has {NAMED_PER_OWNER:,} named subscriptions here already"
        else:
            return
        hint = f"end those that nobody needs: unsubscribe({stream!r}, durable=NAME)"
        raise LinkError(full, hint=hint, code="E_LIMIT")

    def forget(self, now_us: int, sink: str, peer: str, owner: str, message: Forget) -> None:
        """End a named subscription; the answer goes out once that is durable.

        Args:
            owner: whose it is; where the message names one, the client may end it even while it is read.
        """
        sender = self._outputs[sink].sender
        key = key_of(owner, message.name)
        if any(e.peer == peer and e.message == message for e in self._waiting):
            return
        view = sender.receivers.get(key)
        if view is None and (peer, message.request) in self._answered:
            self._outbox.send(peer, Reply(request=message.request))
        elif view is None:
            mine = [owner_and_name(each) for each in sender.receivers if is_key(each)]
            whose = message.owner or "this client"
            text = f"stream {message.stream!r} has no named subscription {message.name!r} of {whose}"
            hint = did_you_mean(message.name, [name for of, name in mine if of == owner])
            self._outbox.send(peer, Reply(request=message.request, code="E_NAME", text=text, hint=hint))
        elif not message.owner and view.peer not in ("", peer) and view.state is SenderState.FLOWING:
            text = f"subscription {message.name!r} is being read by another program"
            self._outbox.send(
                peer, Reply(request=message.request, code=TAKEN, text=text, hint="close it there")
            )
        else:
            if view.peer:
                text = f"subscription {message.name!r} was ended"
                refusal = Refuse(code="E_REMOVED", text=text, stream=message.stream, epoch=view.epoch)
                self._outbox.send(view.peer, refusal)
            sender.forget(now_us, key)
            self._waiting = [e for e in self._waiting if (e.key, e.sink) != (key, sink)]
            self._waiting.append(_Waiting(key, sink, peer, message))
            self._changed(now_us, True)

    def gone(self, peer: str) -> None:
        """A client went; nobody waits for its answers."""
        for each in self._waiting:
            if each.peer == peer and isinstance(each.message, Attach):
                each.peer = ""

    def take_over(self, now_us: int, other: Subscribers) -> None:
        """Who waits for a checkpoint of a fragment that had some of these outputs waits for one of ours."""
        mine = [each for each in other._waiting if each.sink in self._outputs]
        for each in mine:
            each.token = 0
        self._waiting += mine
        self._answered.extend(other._answered)
        if mine:
            self._changed(now_us, True)

    # --- checkpoints ----------------------------------------------------------------------------

    def covered(self, token: int) -> None:
        """This checkpoint holds all that was said so far."""
        for each in self._waiting:
            each.token = each.token or token

    def persisted(self, now_us: int, token: int, ok: bool) -> None:
        """It is durable, or failed."""
        due = [each for each in self._waiting if each.token == token]
        if not ok:
            for each in due:
                each.token = 0
            return
        self._waiting = [each for each in self._waiting if each.token != token]
        for each in due:
            if isinstance(each.message, Forget):
                self._answered.append((each.peer, each.message.request))
                self._outbox.send(each.peer, Reply(request=each.message.request))
            elif each.peer:
                sender = self._outputs[each.sink].sender
                sender.receive(now_us, each.peer, each.message, key=each.key)
