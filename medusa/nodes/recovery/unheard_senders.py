"""A guarded fragment whose owner doesn't hear a sender goes to a secondary that does. No IO.

    sender not heard ── X / 3 ──> asks: whom do you hear? ── answers ──> the first in ``owner_preference``
                                    ^            nobody better │              │
                                    └──────── a second later ──┘              └──> ``handovers``, as ordered

So the stream goes on exactly where only the line between two nodes is lost. The fork (``delay=``) stays the
second answer: when nobody hears more, or when that isn't done before it is due. Nobody is asked amid a move,
and what came here less than ``STAYS_US`` ago stays, so a fragment doesn't go to and fro.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import msgspec

from medusa.decoders import json_decoder
from medusa.elements import END_US
from medusa.nodes.fragment.host import FragmentHost
from medusa.nodes.migration.order import no
from medusa.nodes.recovery.handovers import PREPARING, Handovers
from medusa.nodes.recovery.owner_preference import Hears, preferred
from medusa.nodes.recovery.replication import Replication
from medusa.nodes.recovery.succession import Succession
from medusa.ports import Buffer
from medusa.query.recovery import STATE_BACKUP
from medusa.wire.messages.commands import Reply
from medusa.wire.messages.configuration import Replicas
from medusa.wire.messages.move import Move
from medusa.wire.outbox import Outbox

__all__ = ["DUE_SHARE", "DUE_US_MAX", "UnheardSenders", "due_us"]

DUE_SHARE = 3
"""A sender that isn't heard for one part in so many of X is looked for elsewhere. Too small: a handover for
each hiccup; too large: the fork is due before the other node has the fragment."""

DUE_US_MAX = 3_000_000
"""It is never waited longer than this, nor less without ``delay=``: nothing shows meanwhile. Too small: a
handover where a node only restarts; too large: so long the query stands still."""

ANSWER_US = 300_000
"""Who hasn't answered by then isn't considered. Too small: none on a slow line; too large: X goes by."""

ALIVE_US = 300_000
"""A secondary has to have heard a sender so much later than the owner: that may be lost, and the secondary
hasn't noticed. Too small: it goes to a node that hears as little; too large: it is asked once more."""

AGAIN_US = 1_000_000
"""While nobody hears more it is asked again after this."""

ORDER_US = 5_000_000
"""An order is given up after this."""

FAILED_US, FAILED_US_MAX = 2_000_000, 60_000_000
"""After an order that came to nothing it is asked again after the first, then after twice the time, up to the
second."""

STAYS_US = 60_000_000
"""A fragment stays so long where it has come to. Too small: it goes to and fro over lines that come and go;
too large: so long nobody but a fork answers once its new owner misses something."""

_HEARD = json_decoder(dict[str, int])


def due_us(delay_us: int) -> int:
    """A sender may be missing for so long at a fragment with this bound (0: it has none)."""
    return min(delay_us // DUE_SHARE, DUE_US_MAX) if delay_us else DUE_US_MAX


@dataclass(slots=True, kw_only=True)
class _Watch:
    """A fragment of ours that doesn't hear a sender.

    Attributes:
        look_at_us: when there is something to do about it.
        question: the number of what its secondaries were asked; 0: they weren't.
        waits_for: those that haven't answered.
        heard: secondary -> node -> how long ago it heard that.
        order: the number of our order to hand it over; 0: there is none.
        to: who is to have it by that.
        failed_us: it is asked again so long after the next order that comes to nothing.
    """

    look_at_us: int
    question: int = 0
    waits_for: set[str] = field(default_factory=set)
    heard: dict[str, Mapping[str, int]] = field(default_factory=dict)
    order: int = 0
    to: str = ""
    failed_us: int = FAILED_US


class UnheardSenders:
    """Both sides, at one node.

    Args:
        fragments: what runs here, by name.
        number: gives numbers for questions to nodes.
        is_up: whether a node is heard here; this node always is.
        broken_since_us: since when a node isn't heard here, or doesn't hear us; None: all is well.
        heard_at_us: when a node was heard last; None: it never was.
    """

    def __init__(
        self,
        me: str,
        fragments: Mapping[str, FragmentHost],
        *,
        outbox: Outbox,
        handovers: Handovers,
        replication: Replication,
        succession: Succession,
        number: Callable[[], int],
        is_up: Callable[[str], bool],
        broken_since_us: Callable[[str], int | None],
        heard_at_us: Callable[[str], int | None],
    ) -> None:
        self._me = me
        self._fragments = fragments
        self._outbox = outbox
        self._handovers = handovers
        self._replication = replication
        self._succession = succession
        self._number = number
        self._is_up = is_up
        self._broken_since_us = broken_since_us
        self._heard_at_us = heard_at_us
        self._watched: dict[str, _Watch] = {}
        self._ordered: dict[int, str] = {}
        """Orders that haven't been answered -> their fragments."""

    # --- the owner --------------------------------------------------------------------------------------

    def tick(self, now_us: int) -> None:
        """Look which senders are missing; ask, and order, what is due."""
        owned = {of.spec.name: (of, each) for of, _, each in self._replication.owned() if _may_go(of, each)}
        for name in [name for name in self._watched if name not in owned]:
            del self._watched[name]
        for name, (hosted, replicas) in owned.items():
            if missing := self._missing(hosted):
                self._miss(now_us, hosted, replicas, missing)
            elif name in self._watched:
                self._all_heard(name)

    def _missing(self, hosted: FragmentHost) -> dict[str, int]:
        """Senders that aren't heard, or don't hear us, and since when."""
        found: dict[str, int] = {}
        for input in hosted.inputs.values():
            if not input.judged or input.receiver.boundary_us >= END_US:
                continue
            since_us = self._broken_since_us(input.by)
            if since_us is None and not self._is_up(input.by):
                since_us = input.silent_since_us
            if since_us is not None:
                found[input.by] = min(since_us, found.get(input.by, since_us))
        return found

    def _all_heard(self, name: str) -> None:
        going = self._handovers.status().get(name)
        if self._watched.pop(name).order and going is not None and going.state == PREPARING:
            why = no("E_BROKEN", f"fragment {name!r} stays: its senders are heard again", "")
            self._handovers.cancel(name, why)

    def _miss(
        self, now_us: int, hosted: FragmentHost, replicas: Replicas, missing: Mapping[str, int]
    ) -> None:
        name = hosted.spec.name
        since_us = min(missing.values())
        watch = self._watched.get(name)
        if watch is None:
            watch = self._watched[name] = _Watch(look_at_us=since_us + due_us(hosted.spec.delay_us))
        if watch.order:
            return
        if watch.question and (not watch.waits_for or now_us >= watch.look_at_us):
            self._choose(now_us, hosted, watch, replicas, missing)
        elif now_us >= watch.look_at_us:
            self._ask(now_us, hosted, watch, replicas)

    def _ask(self, now_us: int, hosted: FragmentHost, watch: _Watch, replicas: Replicas) -> None:
        name = hosted.spec.name
        came_us = self._succession.taken_over_at_us(name)
        if came_us is not None and now_us < came_us + STAYS_US:
            watch.look_at_us = came_us + STAYS_US
            return
        watch.look_at_us = now_us + AGAIN_US
        nodes = [node for node in replicas.secondaries if self._could(name, node)]
        if not nodes or self._handovers.going(name) or self._handovers.majority_away(name, self._me):
            return
        watch.look_at_us = now_us + ANSWER_US
        watch.question, watch.waits_for, watch.heard = self._number(), set(nodes), {}
        hears = dict.fromkeys((*self._senders(hosted), *self._readers(hosted)))
        for node in nodes:
            self._outbox.send(
                node,
                Move(
                    request=watch.question,
                    fragment=name,
                    to=node,
                    timeout_ms=ANSWER_US // 1000,
                    reads=replicas.reads,
                    hears=tuple(hears),
                ),
            )

    def _could(self, fragment: str, node: str) -> bool:
        return node != self._me and self._is_up(node) and self._replication.near(fragment, node)

    @staticmethod
    def _senders(hosted: FragmentHost) -> dict[str, None]:
        """Nodes from which more is to come."""
        judged = (each for each in hosted.inputs.values() if each.judged)
        return dict.fromkeys(each.by for each in judged if each.receiver.boundary_us < END_US)

    def _readers(self, hosted: FragmentHost) -> dict[str, None]:
        """Nodes that read it and are heard here."""
        nodes = (node for each in hosted.spec.readers.values() for node in each)
        return dict.fromkeys(node for node in nodes if self._is_up(node))

    def _choose(
        self,
        now_us: int,
        hosted: FragmentHost,
        watch: _Watch,
        replicas: Replicas,
        missing: Mapping[str, int],
    ) -> None:
        name, senders = hosted.spec.name, self._senders(hosted)
        own = _hears(len(senders) - len(missing), len(senders))
        found = []
        for node in replicas.secondaries:
            heard = watch.heard.get(node)
            if heard is None or not self._could(name, node) or self._readers(hosted).keys() - heard.keys():
                continue
            there = sum(self._is_heard(now_us, each, heard, missing) for each in senders)
            found.append((node, _hears(there, len(senders))))
        watch.question, watch.look_at_us = 0, now_us + AGAIN_US
        if not (to := preferred(own, found)):
            return
        watch.order, watch.to = self._number(), to
        self._ordered[watch.order] = name
        unheard = ", ".join(sorted(missing))
        self._outbox.report("warning", "fragment is handed over", fragment=name, to=to, unheard=unheard)
        self._handovers.order(now_us, self._me, watch.order, name, to, ORDER_US)

    @staticmethod
    def _is_heard(now_us: int, sender: str, heard: Mapping[str, int], missing: Mapping[str, int]) -> bool:
        """Whether a secondary hears a sender; of one that is missing here, that it is there still."""
        ago_us = heard.get(sender)
        if ago_us is None:
            return False
        return sender not in missing or now_us - ago_us >= missing[sender] + ALIVE_US

    def answered(self, now_us: int, peer: str, reply: Reply, payload: Buffer | None) -> bool:
        """Take an answer, to a question or to an order of ours; whether it was one."""
        if (name := self._ordered.pop(reply.request, None)) is not None:
            watch = self._watched.get(name)
            if watch is not None and watch.order == reply.request:
                self._order_ended(now_us, name, watch, reply)
            return True
        watch = next((each for each in self._watched.values() if each.question == reply.request), None)
        if watch is None or not reply.request or peer not in watch.waits_for:
            return False
        watch.waits_for.discard(peer)
        try:
            watch.heard[peer] = _HEARD.decode(bytes(payload or b""))
        except msgspec.DecodeError:
            watch.heard.pop(peer, None)  # It refuses, or its release knows no such question.
        return True

    def _order_ended(self, now_us: int, name: str, watch: _Watch, reply: Reply) -> None:
        watch.order, watch.look_at_us = 0, now_us + watch.failed_us
        watch.failed_us = min(2 * watch.failed_us, FAILED_US_MAX)
        if reply.code:
            why = f"{reply.code}: {reply.text}"
            self._outbox.report("warning", "fragment wasn't handed over", fragment=name, to=watch.to, why=why)

    # --- who stands by ------------------------------------------------------------------------------------

    def asked(self, now_us: int, peer: str, message: Move) -> bool:
        """The owner of what we follow asks whom we hear; whether it is that."""
        if not message.hears or message.to != self._me:
            return False
        ago: dict[str, int] = {}
        for node in message.hears:
            heard_us = now_us if node == self._me else self._heard_at_us(node)
            well = self._is_up(node) and self._broken_since_us(node) is None
            if well and heard_us is not None:
                ago[node] = max(now_us - heard_us, 0)
        self._outbox.send(peer, Reply(request=message.request), msgspec.json.encode(ago))
        return True

    # --- life -------------------------------------------------------------------------------------------

    def wake_at_us(self) -> int | None:
        """When ``tick`` has work."""
        waiting = (each for each in self._watched.values() if not each.order)
        return min((each.look_at_us for each in waiting), default=None)


def _may_go(hosted: FragmentHost, replicas: Replicas) -> bool:
    """Whether it runs here, and goes on elsewhere where it stands."""
    forgets = hosted.forgets or hosted.spec.keeps_nothing or hosted.spec.reads_again
    # Who only holds its state would give it back at once.
    forgets = forgets or hosted.spec.method == STATE_BACKUP
    runs = not (hosted.failed or hosted.frozen or hosted.settling)
    return runs and not forgets and not replicas.abroad and bool(replicas.secondaries)


def _hears(count: int, of: int) -> Hears:
    if count >= of:
        return Hears.ALL
    return Hears.SOME if count > 0 else Hears.NONE
