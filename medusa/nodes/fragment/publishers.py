"""Named publishers of one fragment's sources: begun, taken over and ended durably. No IO.

    OpenPublisher(name) ── nobody else has it? ──────────────> as any publisher
             │ new, or of another client
             └── who had it is told ── all that came of it is fed, and on disk ──> the same

The rows of a name are numbered on, whoever sends them, and the position is in each checkpoint as that of any
input. Who comes new is answered once all that came before is durable, so it hears the number of the first
row that isn't here, and what it was told survives whatever dies. While the log is fed again, which may wait
for its rows, it is answered at once: rows that came since the checkpoint then come twice, and count once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from medusa.elements import END_US
from medusa.errors import LinkError, RemoteProtocolError
from medusa.nodes.fragment.inputs import FragmentInput
from medusa.nodes.fragment.link_teardown import RESTING
from medusa.nodes.fragment.subscribers import ANSWERS_KEPT, NAMED_PER_OWNER, NAMED_PER_STREAM
from medusa.query.boxes import Schema
from medusa.query.suggest import did_you_mean
from medusa.wire.link.automaton import LinkEvent
from medusa.wire.link.named_subscriptions import TAKEN, key_of, owner_and_name
from medusa.wire.messages.commands import Forget, Reply
from medusa.wire.messages.links import OpenPublisher, Refuse
from medusa.wire.outbox import Outbox

__all__ = ["Publishers"]


@dataclass(slots=True, eq=False)
class _Waiting:
    """What is done once all that came of an input is durable.

    Attributes:
        peer: who asked.
        token: of the checkpoint under way that holds it; 0: none yet.
        ended: the input is gone, and that is what has to be durable.
    """

    input: FragmentInput
    peer: str
    message: OpenPublisher | Forget
    token: int = 0
    ended: bool = False


class Publishers:
    """Who publishes into a fragment under names.

    Args:
        inputs: all inputs by (source, peer); shared with its owner.
        make: a new input, of peer, source, columns and key.
        changed: called with (now, whether soon) where there is something that a checkpoint should hold.
        repeats: what was fed before a restart is being fed again, and no checkpoint is taken.
        has_name: told when another client has a name.
    """

    def __init__(
        self,
        inputs: dict[tuple[str, str], FragmentInput],
        make: Callable[[str, str, Schema, str], FragmentInput],
        changed: Callable[[int, bool], None],
        repeats: Callable[[], bool],
        *,
        outbox: Outbox,
        has_name: Callable[[FragmentInput], None] = lambda input: None,
    ) -> None:
        self._inputs = inputs
        self._make = make
        self._changed = changed
        self._repeats = repeats
        self._has_name = has_name
        self._outbox = outbox
        self._waiting: list[_Waiting] = []
        self._answered: deque[tuple[str, int]] = deque(maxlen=ANSWERS_KEPT)
        self._ended: deque[tuple[str, str]] = deque(maxlen=ANSWERS_KEPT)
        """Name and the client that had it when it was ended."""

    def count(self, owner: str) -> int:
        """Names of this owner."""
        named = (each for each in self._inputs.values() if each.named)
        return sum(owner_and_name(each.peer)[0] == owner for each in named)

    def rests(self, input: FragmentInput) -> bool:
        """It takes nothing until what came is durable."""
        return any(each.input is input for each in self._waiting)

    # --- messages -----------------------------------------------------------------------------

    def open(
        self, now_us: int, peer: str, source: str, message: OpenPublisher, *, owner: str, others: int
    ) -> None:
        """A client has rows under a name.

        Args:
            owner: who has its key.
            others: named publishers of that owner at this node.

        Raises:
            LinkError: there are too many names (``E_LIMIT``), or it goes on with one that was ended
                (``E_NAME``) or is another program's now (``E_TAKEN``), or it was finished (``E_FINISHED``).
            RemoteProtocolError: as for any publisher.
        """
        key = key_of(owner, message.name)
        input = self._inputs.get((source, key))
        if input is None:
            if message.resumed:
                text = f"nothing is known here of publisher {message.name!r}: it was ended, or deployed anew"
                raise LinkError(text, hint="open it again: rows count from 0", code="E_NAME")
            self._check_room(source, message, others)
            input = self._make(peer, source, message.schema, key)
            self._take(input, peer)
            self._wait(now_us, input, peer, message)
            return
        waiting = next((each for each in self._waiting if each.input is input), None)
        if waiting is not None and isinstance(waiting.message, Forget):
            raise LinkError(f"publisher {message.name!r} is just being ended", code=TAKEN)
        # A connection opens a name once: if it had it and has it no more, it only asks again.
        if peer != input.by and (message.resumed or peer in input.ousted or (key, peer) in self._ended):
            raise LinkError(
                f"another program publishes as {message.name!r} meanwhile",
                hint="give each program a name of its own; who opens a name last has it",
                code=TAKEN,
            )
        if peer == input.by and (
            waiting is not None or message.resumed or input.receiver.state not in RESTING
        ):
            if waiting is None and input.receiver.state in RESTING:
                input.repeat_not_taken()
                input.receiver.peer_event(now_us, LinkEvent.PEER_RESTARTED)
            return  # Else it will be answered, or is being.
        if input.durable_us >= END_US:
            text, hint = _finished(message)
            raise LinkError(text, hint=hint, code="E_FINISHED")
        if peer != input.by:
            self._oust(input, TAKEN, f"another program publishes as {message.name!r} now")
        self._take(input, peer)
        if waiting is None and self._repeats():
            self._changed(now_us, True)
            input.receiver.peer_event(now_us, LinkEvent.PEER_UP)
        else:
            self._wait(now_us, input, peer, message)

    def _take(self, input: FragmentInput, by: str) -> None:
        input.taken(by)
        self._has_name(input)

    def _wait(self, now_us: int, input: FragmentInput, peer: str, message: OpenPublisher | Forget) -> None:
        self._waiting.append(_Waiting(input, peer, message))
        self._changed(now_us, input.fed)

    def _oust(self, input: FragmentInput, code: str, text: str) -> None:
        """Whoever has the name has it no more, and hears so at once. If that word is lost, or was never said,
        it hears so when it sends or asks again: nothing takes its rows (``StreamRouter.unwanted``), and
        ``open`` refuses a client that goes on with a name that another client has."""
        for each in self._waiting:
            if each.input is input and isinstance(each.message, OpenPublisher):
                refusal = Refuse(code=code, text=text, stream=input.stream)
                self._outbox.send(each.peer, refusal)
        self._waiting = [each for each in self._waiting if each.input is not input]
        if input.receiver.state not in RESTING:
            input.receiver.refuse(RemoteProtocolError(text, code=code))

    def _check_room(self, source: str, message: OpenPublisher, others: int) -> None:
        here = sum(each.named and each.source == source for each in self._inputs.values())
        if here < NAMED_PER_STREAM and others < NAMED_PER_OWNER:
            return
        raise LinkError(
            f"source {message.stream!r} has {NAMED_PER_STREAM} named publishers already"
            if here >= NAMED_PER_STREAM
            else f"this client has {NAMED_PER_OWNER:,} named publishers here already",
            hint=f"end those that nobody needs: unpublish({message.stream!r}, durable=NAME)",
            code="E_LIMIT",
        )

    def forget(self, now_us: int, source: str, peer: str, owner: str, message: Forget) -> None:
        """End a named publisher; the answer goes out once that is durable.

        Args:
            owner: whose it is.
        """
        input = self._inputs.get((source, key_of(owner, message.name)))
        if any(each.peer == peer and each.message == message for each in self._waiting):
            return
        if input is None and (peer, message.request) in self._answered:
            self._outbox.send(peer, Reply(request=message.request))
        elif input is None:
            mine = [owner_and_name(of) for at, of in self._named() if at == source]
            whose = message.owner or "this client"
            text = f"source {message.stream!r} has no named publisher {message.name!r} of {whose}"
            hint = did_you_mean(message.name, [name for of, name in mine if of == owner])
            self._outbox.send(peer, Reply(request=message.request, code="E_NAME", text=text, hint=hint))
        elif any(each.input is input and isinstance(each.message, Forget) for each in self._waiting):
            text = f"publisher {message.name!r} is just being ended by another program"
            self._outbox.send(peer, Reply(request=message.request, code=TAKEN, text=text))
        else:
            self._oust(input, "E_REMOVED", f"publisher {message.name!r} was ended")
            self._ended.append((input.peer, input.by))
            self._take(input, "")
            input.falls_silent(now_us)
            self._wait(now_us, input, peer, message)

    def _named(self) -> list[tuple[str, str]]:
        return [at for at, each in self._inputs.items() if each.named]

    # --- checkpoints ----------------------------------------------------------------------------

    def covered(self, token: int) -> None:
        """This checkpoint holds all that was said so far."""
        for each in self._waiting:
            each.token = each.token or token

    def persisted(self, now_us: int, token: int, ok: bool) -> None:
        """It is durable, or failed; inputs know it."""
        due = [each for each in self._waiting if each.token == token]
        for each in due:
            each.token = 0
        if ok:
            for each in due:
                if self._done(now_us, each):
                    self._waiting.remove(each)
            if left := [each for each in due if each in self._waiting]:
                self._changed(now_us, any(each.input.fed for each in left))

    def _done(self, now_us: int, each: _Waiting) -> bool:
        """Whether nothing is left to wait for; what then follows is done."""
        input, message = each.input, each.message
        if isinstance(message, OpenPublisher):
            if input.settled and input.durable_us >= END_US:
                text, hint = _finished(message)
                refusal = Refuse(code="E_FINISHED", text=text, hint=hint, stream=input.stream)
                self._outbox.send(each.peer, refusal)
            elif input.settled and input.silent_since_us is None:
                input.receiver.peer_event(now_us, LinkEvent.PEER_UP)
            return input.settled
        if each.ended:
            self._answered.append((each.peer, message.request))
            self._outbox.send(each.peer, Reply(request=message.request))
            return True
        if input.settled:
            each.ended = True
            del self._inputs[input.source, input.peer]
        return False


def _finished(message: OpenPublisher) -> tuple[str, str]:
    text = f"publisher {message.name!r} has finished source {message.stream!r}"
    return text, f"to begin anew, end it first: unpublish({message.stream!r}, durable=NAME)"
