"""Streams by name alone: a client finds the node that has one, connects to it, and goes after it when it
moves. It believes only nodes with which it has spoken by their key."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from medusa.errors import LinkError, LocalProtocolError
from medusa.runtime.client.client_loop import ClientLoop, ask, now_us
from medusa.runtime.client.contacts import Contacts, GivenNode, Place, read_place
from medusa.runtime.client.followed_stream import Followed
from medusa.runtime.keys.client_keys import ClientKeys
from medusa.wire.link.redirect import RedirectStep, ask_again_us, next_step
from medusa.wire.messages import Message
from medusa.wire.messages.directory import Lookup

__all__ = ["FollowedNames", "Place"]

LOOK_EVERY_S = 0.1
LOOK_AGAIN_S = 0.005
"""After a node has said that a stream moved: who has it now may not have said so yet."""

AWAY_US = 1_000_000
"""A node that is away for so long may be at another address; and others take the orders that it would."""

ASKED_MAX = 3
"""So many other nodes are asked where a stream is that was lost: one of them may not have heard of it yet."""

LOOKUP_US = 2_000_000
NEWS_US = 1_000_000
"""News of the catalog are everywhere by then."""


class FollowedNames:
    """The connections of one client, and its streams.

    Where the node of a stream is unreachable, other nodes of the participant are asked at once where the
    stream is now. Which there are it has heard from its own node. It calls them when it has lost one.

    Args:
        home: the connection that the user asked for.
        keys: what it was made with.
        given: other addresses that the user gave. With any, another node becomes ``home`` when that is lost.
    """

    def __init__(
        self,
        home: ClientLoop,
        keys: ClientKeys | None,
        given: Iterable[GivenNode] = (),
    ) -> None:
        self._home = self._orders = home
        self._keys = keys
        self._contacts = Contacts(given)
        self._stays = not self._contacts.given
        self._given = (GivenNode(home.address, home.keys), *self._contacts.given) if not self._stays else ()
        self._calls: set[threading.Thread] = set()
        self._loops: dict[str, ClientLoop] = {home.node: home}
        self._dials: dict[str, threading.Lock] = {}
        """One per node. Two dials at once would be one client twice, for that node."""
        self._dialled: set[ClientLoop] = set()
        self._streams: list[Followed] = []
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        # No Event: Ctrl-C inside of its methods would leave its lock taken for ever.
        self._over = False
        self._rest = threading.Lock()
        self._rest.acquire()
        home.tell_moves(self._end_rest)
        if not self._stays:
            self._begin()

    @property
    def home(self) -> ClientLoop:
        """The connection to the node that this client is a client of."""
        return self._home

    @property
    def orders(self) -> ClientLoop:
        """The connection by which orders go now."""
        return self._orders

    @property
    def closed(self) -> bool:
        """``end`` was called."""
        return self._orders.closed

    @property
    def ways(self) -> list[GivenNode]:
        """Where another connection for the same user may be made: first where orders go now."""
        orders = self._orders
        first = GivenNode(orders.address, orders.keys)
        return [first, *(each for each in self._given if each.address != first.address)]

    def order(self, make: Callable[[int], Message], timeout_us: int) -> Any:
        """Give an order that any node takes; where ours is away all the while, another one gets it.

        Raises:
            LinkError: refused, or no answer in time.
        """
        while True:
            loop, begun_us = self._orders, now_us()

            def lost(loop: ClientLoop = loop, begun_us: int = begun_us) -> bool:
                return loop is not self._orders and loop.down_since(begun_us)

            try:
                return ask(loop, make, timeout_us=timeout_us, lost=lost)
            except LinkError as error:
                if error.code != "link.lost":
                    raise

    # --- names --------------------------------------------------------------------------------------

    def lookup(
        self, name: str, kind: str = "", first: ClientLoop | None = None, patient: bool = True
    ) -> Place:
        """Where a name leads, as a node that is there says.

        Args:
            first: the connection to a node that knows best; None: the one that the user asked for.
            patient: where none is there, to wait for ours or for any that comes.

        Raises:
            LinkError: nothing is called so (``E_STREAM``), or no node answers.
        """
        while True:
            loops = list(dict.fromkeys([first or self._home, self._home, *self._own()]))
            there = [loop for loop in loops if not loop.down_us()] or [self._home]
            for number, loop in enumerate(there, start=1):
                last = number == len(there)
                timeout_us = loop.timeout_us if last else min(LOOKUP_US, loop.timeout_us)
                try:
                    return self._ask(loop, name, kind, timeout_us, patient=patient and last)
                except LinkError as error:
                    if error.code == "link.lost" and patient:
                        continue
                    if last or not error.code.startswith("link."):
                        raise

    def _ask(self, loop: ClientLoop, name: str, kind: str, timeout_us: int, *, patient: bool) -> Place:
        """Where a name leads, as one node says.

        Args:
            patient: to wait for this node should it go away, until another one is there.
        """

        def lost() -> bool:
            return loop.down_us() > 0 and (not patient or any(not each.down_us() for each in self._own()))

        found: Place = ask(
            loop,
            lambda number: Lookup(request=number, name=name, kind=kind),
            timeout_us=timeout_us,
            lost=lost,
        )
        return found

    def _own(self) -> list[ClientLoop]:
        """The connections to nodes of our participant, as far as we know which those are."""
        with self._lock:
            loops = dict(self._loops)
        known = [loop for node, loop in loops.items() if loop is self._home or node in self._contacts]
        return known if self._contacts else list(loops.values())

    def own(self, name: str, slashes: int = 0) -> str:
        """A name of our participant without that in front: ``local/trips`` is ``trips``.

        Args:
            slashes: in the name itself: 1 in that of a fragment or box.

        Raises:
            LinkError: it is another participant's (``E_ROLE``).
        """
        if not isinstance(name, str) or name.count("/") <= slashes:
            return name
        whose, _, short = name.partition("/")
        ours = str(self.lookup(self._home.node, "node")["participant"])
        if whose != ours:
            text = f"{name[:200]!r} belongs to participant {whose[:100]!r}, and this is a node of {ours!r}"
            raise LinkError(text, hint=f"only {whose[:100]} changes it, at a node of its own", code="E_ROLE")
        return short

    def listed(self, kind: str) -> list[dict[str, Any]]:
        """All of a kind, by name."""
        found: list[dict[str, Any]] = self.lookup("", kind)["entries"]
        return found

    def place(self, name: str, kind: str) -> Place | None:
        """Where a stream or source is that was asked for by name; None: nowhere, as far as anybody knows, or
        at several nodes that aren't ours.

        Both are asked for again for a second: what was deployed just now may not be known everywhere, and of
        what moved the word that it came may be known before the word that it left.
        What was defined by name is a source and a stream.
        """
        end_us = now_us() + NEWS_US
        while True:
            for each in (kind, "definition"):
                try:
                    place = self.lookup(name, each)
                except LinkError as error:
                    if error.code != "E_STREAM":
                        raise
                    continue
                if each != kind:
                    return {**self.lookup(place[kind], kind), "version": place["version"]}
                if self._is_one(place):
                    return place
                break
            if now_us() >= end_us:
                return None
            time.sleep(LOOK_EVERY_S / 4)

    def hinted(self, error: LinkError, name: str, kind: str) -> LinkError:
        """What a node says that has no such stream or source; the nearest name is of all nodes, not of that
        one alone, as are those that have it."""
        if error.code == "E_STREAM":
            with contextlib.suppress(LinkError):
                try:
                    holders = self.lookup(name, kind)["holders"]
                    if len(holders) > 1:
                        hint = f"it is at the nodes {', '.join(holders)}: connect to one of these"
                        return LinkError(error.message, hint=hint, code=error.code)
                except LinkError as nowhere:
                    if nowhere.code != "E_STREAM":
                        raise
                    if "/" in name:
                        return nowhere
                    return LinkError(error.message, hint=nowhere.hint, code=error.code)
        return error

    def _is_one(self, place: Place) -> bool:
        """Whether it is clear which is meant: one, or the one of our own node."""
        return len(place["holders"]) == 1 or place["node"] == self._home.node

    def reach(self, place: Place, kind: str) -> tuple[ClientLoop, Place]:
        """A connection to the node that has a stream or source, and where that is: another node may have
        taken it over from the one that was named.

        Raises:
            LinkError: as ``loop_at``.
        """
        self._learn()  # Who follows a stream knows from its first moment whom else to ask.
        try:
            return self.loop_at(place, AWAY_US), place
        except LinkError as error:
            if error.code != "link.timeout":
                raise
        whose = place.get("participant", "")
        again = self.place(f"{whose}/{place['name']}" if whose else place["name"], kind) or place
        return self.loop_at(again), again

    def loop_at(self, place: Place, timeout_us: int | None = None) -> ClientLoop:
        """A connection to the node that has it.

        Args:
            timeout_us: wait so long for a node with which we haven't spoken yet; who dials it already is
                waited for besides.

        Raises:
            LinkError: it can't be reached, or has no key where we have one.
        """
        node, address = place["node"], place["address"]
        keys = self._keys_for(place)
        if (loop := self._known(node, address, keys)) is not None:
            return loop
        if not address:
            raise LinkError(f"nobody knows where node {node!r} is", code="link.address")
        with self._lock:
            dial = self._dials.setdefault(node, threading.Lock())
        with dial:  # Nothing else waits for a node that doesn't answer.
            return self._known(node, address, keys) or self._dial(node, address, keys, timeout_us)

    def _known(self, node: str, address: str, keys: ClientKeys | None) -> ClientLoop | None:
        """The connection that there is, called at this address if it is down."""
        with self._lock:
            loop = self._loops.get(node)
            if loop is not None and loop.down_us() > AWAY_US and address and loop.address != address:
                loop.call_at(address, keys)
            return loop

    def _dial(self, node: str, address: str, keys: ClientKeys | None, timeout_us: int | None) -> ClientLoop:
        usual_us = self._home.timeout_us
        wait_us = min(timeout_us or usual_us, usual_us)
        with self._noted() as note:
            loop = ClientLoop(address, wait_us, keys, self._home.name, note, f"node {node!r}")
            try:
                loop.timeout_us = usual_us
                if loop.node != node:
                    raise LinkError(f"at {address} is node {loop.node!r}, not {node!r}", code="E_IDENTITY")
                loop.tell_moves(self._end_rest)
                with self._lock:
                    self._loops[node] = loop
            except BaseException:
                loop.close()
                raise
            return loop

    def _keys_for(self, place: Place) -> ClientKeys | None:
        if self._keys is None:
            return None
        if not place["server_key"]:
            raise LinkError(
                f"node {place['node']!r} has no key in the catalog", hint="give it [keys]", code="link.keys"
            )
        return replace(self._keys, server=place["server_key"], pins=None, is_new=False)

    # --- following ------------------------------------------------------------------------------------

    def add(self, stream: Followed, epoch: int) -> None:
        """Go after it from now on."""
        stream.follow_from(epoch)
        with self._lock:
            self._streams.append(stream)
        self._begin()

    def _begin(self) -> None:
        with self._lock:
            if self._thread is None or not self._thread.is_alive():  # A start can be interrupted.
                self._thread = threading.Thread(target=self._drive, name="medusa-follow", daemon=True)
                self._thread.start()

    def _drive(self) -> None:
        rest_s = LOOK_EVERY_S
        while True:
            told = self._rest.acquire(timeout=rest_s)
            if self._over:
                return
            seeks = False
            # A connection that fails or is closed meanwhile says so to whoever uses it.
            with contextlib.suppress(LinkError, LocalProtocolError):
                seeks = self._look()
            rest_s = min(LOOK_AGAIN_S if told else 2 * rest_s, self._asks_in_s()) if seeks else LOOK_EVERY_S

    def _asks_in_s(self) -> float:
        """How soon to look again where a stream is whose node is away, if one is."""
        with self._lock:
            away_us = [each.loop.down_us() for each in self._streams]
        return min([LOOK_EVERY_S, *(ask_again_us(each) / 1e6 for each in away_us if each)])

    def _end_rest(self) -> None:
        """A stream has moved: look at once."""
        with contextlib.suppress(RuntimeError):  # It doesn't rest, and will look again before it does.
            self._rest.release()

    def _look(self) -> bool:
        """Whether one is still sought."""
        with self._lock:
            self._streams = [each for each in self._streams if not each.over]
            streams, loops = list(self._streams), dict(self._loops)
        down = {node: loop for node, loop in loops.items() if loop.down_us()}
        if down:
            self._call_successors([each for each in streams if each.loop in down.values()])
            self._call_others()
        self._choose()
        if len(down) == len(loops):
            return bool(streams)  # Nobody could tell.
        self._learn()
        for node, loop in down.items():
            if loop.down_us() > AWAY_US:
                with contextlib.suppress(LinkError):
                    self._seek_node(node, loop)
        for stream in streams:
            with contextlib.suppress(LinkError):
                if stream.loop not in down.values():
                    self._learn_successors(stream)
                elif not stream.participant:  # Only nodes of its own participant hear of it by themselves.
                    self._await_news(stream)
            if stream.sought() is not None or stream.asks(now_us()):
                with contextlib.suppress(LinkError, LocalProtocolError):
                    self._seek(stream)
        return any(stream.sought() is not None or stream.loop in down.values() for stream in streams)

    def _choose(self) -> None:
        """By which connection orders go: by another one while our node is away. Which node is ours changes
        only where the user gave several."""
        if not self._contacts or self._over:
            return
        there = [loop for loop in self._own() if not loop.down_us()]
        home, least_us = self._home, AWAY_US if self._stays else 0
        orders = home if home.down_us() <= least_us else next(iter(there), home)
        if not self._stays:
            self._home = orders
        if orders is not self._orders:
            before, self._orders = self._orders, orders
            before.ring()

    def _learn(self) -> None:
        """Hear which other nodes there are, while there is one to ask."""
        if self._contacts.to_learn(now_us()):
            with contextlib.suppress(LinkError):
                self._contacts.learn(now_us(), self.lookup("", "node", None, False)["entries"])

    def _seek_node(self, node: str, loop: ClientLoop) -> None:
        """It may have come back at another address."""
        place = self.lookup(node, "node", None, False)
        if place["address"] and place["address"] != loop.address:
            loop.call_at(place["address"], self._keys_for(place))

    def _seek(self, stream: Followed) -> None:
        refusal, place = stream.sought(), None
        try:
            if refusal is None:
                place = self._newest(stream)
            elif stream.participant:  # Its own nodes know of a move before it is published to others.
                place = self.lookup(f"{stream.participant}/{stream.name}", stream.kind, stream.loop, False)
            else:
                place = self.lookup(stream.name, stream.kind, None, False)
        except LinkError as error:
            if error.code != "E_STREAM":
                return
        here = stream.loop.node
        step = next_step(
            refusal.code if refusal is not None else "",
            here=here,
            epoch=stream.epoch,
            place=None if place is None else (place["node"], place["epoch"]),
            missing_us=stream.missing_us(now_us(), known=place is not None),
        )
        if step is RedirectStep.GIVE_UP and refusal is not None:
            stream.give_up(refusal)
        elif step is RedirectStep.MOVE and place is not None:
            loop = stream.loop if place["node"] == here else self._called(place)
            if loop is not None:
                stream.move(loop, place["epoch"])

    def _newest(self, stream: Followed) -> Place | None:
        """Where a stream is whose node is away, as others say: of that the highest epoch counts."""
        if (newest := stream.take_heard()) is not None:
            return newest
        name = _full_name(stream)
        for loop in [each for each in self._own() if not each.down_us()][:ASKED_MAX]:
            with contextlib.suppress(LinkError):
                place = self._ask(loop, name, stream.kind, LOOKUP_US, patient=False)
                if newest is None or place["epoch"] > newest["epoch"]:
                    newest = place
                if place["epoch"] > stream.epoch:
                    break
        return newest

    def _await_news(self, stream: Followed) -> None:
        """Have other nodes say where a stream comes to be whose node is away, as soon as they know."""
        name, kind, epoch = _full_name(stream), stream.kind, stream.epoch
        for loop in [each for each in self._own() if not each.down_us()][:ASKED_MAX]:
            if stream.awaits(loop, at_us := now_us()):
                number = loop.ask_aside(
                    lambda number: Lookup(request=number, name=name, kind=kind, above=epoch),
                    read_place,
                    lambda place: self._heard(stream, place),
                )
                stream.awaited(loop, at_us, number)

    def _heard(self, stream: Followed, place: Place) -> None:
        if place["epoch"] > stream.epoch:
            stream.heard(place)
            self._end_rest()

    def _learn_successors(self, stream: Followed) -> None:
        """Hear from the node of a stream who may have it next: it is too late when that is lost."""
        if not stream.participant and stream.to_learn(now_us()):
            stream.loop.ask_aside(
                lambda number: Lookup(request=number, name=stream.name, kind=stream.kind),
                read_place,
                lambda place: stream.learn(now_us(), place.get("successors", ())),
            )

    # --- calls that nobody waits for ----------------------------------------------------------------

    def _called(self, place: Place) -> ClientLoop | None:
        """The connection to a node; None: it is only being called, and we look again when it answers."""
        with self._lock:
            calls = place.get("address") and place["node"] not in self._loops
            begins = calls and self._contacts.calls(now_us(), place)
        if begins:
            self._call_aside(place)
        return None if calls else self.loop_at(place)

    def _call_successors(self, streams: Iterable[Followed]) -> None:
        """Those that may have what is lost next: they know first, and then the rows are there."""
        for place in [place for stream in streams for place in stream.successors]:
            with self._lock:
                calls = place["address"] and place["node"] not in self._loops
                begins = calls and self._contacts.calls(now_us(), place)
            if begins:
                self._call_aside(place)

    def _call_others(self) -> None:
        """Have others than those that are lost."""
        up = sum(not loop.down_us() for loop in self._own())
        with self._lock:
            calls = self._contacts.to_call(now_us(), up, self._loops)
        for target in calls:
            self._call_aside(target)

    def _call_aside(self, target: Place | GivenNode) -> None:
        thread = threading.Thread(target=self._call, args=(target,), name="medusa-call", daemon=True)
        with self._lock:
            self._calls = {each for each in self._calls if each.is_alive()} | {thread}
            thread.start()

    def _call(self, target: Place | GivenNode) -> None:
        there = False
        try:
            with contextlib.suppress(LinkError):
                if isinstance(target, GivenNode):
                    self._find_out(target)
                else:
                    self.loop_at(target)
                there = True
        finally:
            with self._lock:
                self._contacts.called(now_us(), target, there=there)
                for stream in self._streams if there else ():
                    stream.asks_at_once()
        if there:
            self._end_rest()

    def _find_out(self, given: GivenNode) -> None:
        """Which node is at an address. It is asked under another name than ours: it may be one to which we
        have a connection, and would take this one for us, come back."""
        with self._noted() as note:
            loop = ClientLoop(given.address, self._home.timeout_us, given.keys, None, note)
            loop.close()
        server = "" if given.keys is None else given.keys.server
        place = {"node": loop.node, "address": given.address, "server_key": server}
        with self._lock:
            self._contacts.found(given, place)

    @contextlib.contextmanager
    def _noted(self) -> Iterator[Callable[[ClientLoop], None]]:
        """What notes a connection that is being made, so that ``close`` ends it."""
        begun: list[ClientLoop] = []

        def note(loop: ClientLoop) -> None:
            begun.append(loop)
            with self._lock:
                self._dialled.add(loop)
                if self._over:
                    raise LinkError("the connection is closed", code="link.closed")

        try:
            yield note
        finally:
            with self._lock:
                self._dialled.difference_update(begun)

    # --- the end ------------------------------------------------------------------------------------

    def end(self) -> None:
        """Close all connections at once; nobody follows any more."""
        home = self._home
        self.close()
        home.close()
        self.join()
        home = self._home  # It may have become another one meanwhile.
        home.close()

    def close(self) -> None:
        """Close all connections but ``home``."""
        self._over = True
        self._end_rest()
        with self._lock:
            others = [loop for loop in {*self._loops.values(), *self._dialled} if loop is not self._home]
        for loop in others:
            loop.close()

    def join(self) -> None:
        """Wait until nobody follows any more; all connections are closed."""
        if self._thread is not None:
            with contextlib.suppress(RuntimeError):  # Its start was interrupted: it ends with its first look.
                self._thread.join()
        for each in list(self._calls):  # Nobody begins one any more.
            each.join()


def _full_name(stream: Followed) -> str:
    return f"{stream.participant}/{stream.name}" if stream.participant else stream.name
