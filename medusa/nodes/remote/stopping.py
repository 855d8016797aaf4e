"""Parts of queries that end here before their query does: told to who had them begun until it has heard.

Autonomy: whoever keeps a part for another owner may end it at any time, as if the query were undeployed
here. Nothing of it is left. Who coordinates the query is told so, again and again, over restarts, and lists
the part as stopped until it undeploys the query. Until then whoever reads the part's streams here hears why
there are none. A part whose query takes more of the node than it may ends alike, whoever had it begun.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from medusa.errors import LinkError
from medusa.nodes.catalog.catalog import REMOVING, Catalog
from medusa.nodes.catalog.kept_definitions import StoppedPart
from medusa.nodes.catalog.persistence import CatalogWriter
from medusa.nodes.spec.fragment_spec import FragmentSpec
from medusa.wire import limits
from medusa.wire.messages.commands import Remove, Reply
from medusa.wire.messages.remote import StoppedRemote
from medusa.wire.outbox import Outbox

__all__ = ["StoppedParts"]

AGAIN_US = 1_000_000

HEARD_MAX = 100
"""Parts of a query that are listed as stopped: a query has seldom more at other owners."""

KEPT_MAX = 1_000
"""Stopped parts that are remembered; of those whose queries were never undeployed the oldest go."""


class StoppedParts:
    """What this node's owner has stopped here, and what others have stopped of our queries.

    Args:
        drop: forgets fragments of a query here; told the query, their names, and for their readers why,
            and the code of that.
        number: gives numbers for questions to nodes; they grow over all lives.
        count: told the code of what a node may not do here.
        peers: what the links are, ``up`` or not; who isn't there is told when it is.
        whose: the participant of a node; None: unknown.
    """

    def __init__(
        self,
        catalog: Catalog,
        *,
        outbox: Outbox,
        saver: CatalogWriter,
        number: Callable[[], int],
        drop: Callable[[str, list[str], str, str], None],
        count: Callable[[str], None],
        peers: Mapping[str, str],
        whose: Callable[[str], str | None],
    ) -> None:
        self._peers = peers
        self._whose = whose
        self._catalog = catalog
        self._kept = catalog.remote
        self._outbox = outbox
        self._saver = saver
        self._number = number
        self._drop = drop
        self._count = count
        self._numbers: dict[str, int] = {}
        self._said_us: dict[str, int] = {}

    def running(self, full: str) -> list[str]:
        """Fragments that run here by a definition, also one that was revoked since.

        Args:
            full: ``participant/name``. Where no part runs by such a definition, ``participant/query`` means
                all parts of that query here.
        """
        fragments, owners = self._catalog.fragments, self._catalog.owners
        found = [name for name in fragments if self._kept.made.get(name) == full]
        held = self._kept.held.get(full)
        if held is not None and held.fragment.name in fragments and owners[held.fragment.query] == held.node:
            found += [held.fragment.name] if held.fragment.name not in found else []
        if found or held is not None:
            return found
        participant, _, query = full.partition("/")
        other = owners.get(query, self._catalog.node)
        if other == self._catalog.node or self._whose(other) != participant:
            return []
        guests = self._catalog.permits.into  # They go home when their contract ends.
        return [name for name, each in fragments.items() if each.query == query and name not in guests]

    def queries(self, fragments: list[str]) -> list[str]:
        """Of which queries these are."""
        return list(dict.fromkeys(self._catalog.fragments[name].query for name in fragments))

    def end(self, fragment: str, code: str, why: str, at_us: int) -> None:
        """It took more than it may: no restart brings it back, and its readers and publishers hear the code.

        Args:
            at_us: the time, since the Unix epoch; 0: unknown.
        """
        query = self._catalog.fragments[fragment].query
        self._outbox.report("error", "query ended", query=query, fragment=fragment, code=code, why=why)
        self.stop([fragment], code, why, at_us)

    def stop(self, fragments: list[str], code: str = "", why: str = "", at_us: int = 0) -> None:
        """End them; who had them begun will be told."""
        stopped = self._kept.stopped
        for name in fragments:
            spec = self._catalog.fragments[name]
            names = (*spec.streams.values(), *spec.entries.values())
            stopped.pop(name, None)
            stopped[name] = StoppedPart(
                node=self._catalog.owners[spec.query],
                query=spec.query,
                names=names,
                told=False,
                code=code,
                why=why[: limits.TEXT_CHARS_MAX],
                at_us=at_us,
            )
            if stopped[name].node == self._catalog.node:
                self.heard(self._catalog.node, self._word(0, name, stopped[name]))
                stopped[name] = msgspec.structs.replace(stopped[name], told=True)
        while len(stopped) > KEPT_MAX:
            self._forget(next(iter(stopped)))
        for query in self.queries(fragments):
            gone = [name for name in fragments if self._catalog.fragments[name].query == query]
            said = f"{gone[0]!r} was stopped by the owner of node {self._catalog.node!r}"
            self._drop(query, gone, why or said, code)

    def undeployed(self, query: str) -> None:
        """This node removes a query of its own: nothing is left to say of it."""
        kept = self._kept.stopped.items()
        for name in [name for name, each in kept if (each.node, each.query) == (self._catalog.node, query)]:
            self._forget(name)

    def refuse_ended(self, fragment: FragmentSpec) -> None:
        """Raises LinkError: it ended here, and its query is still deployed: it would end again."""
        each = self._kept.stopped.get(fragment.name)
        if (
            each is not None
            and each.code
            and self._catalog.coordinator_of(fragment.query, each.node) == each.node
        ):
            text = f"fragment {fragment.name!r} has ended here: {each.why}"
            raise LinkError(text, hint=f"undeploy {fragment.query} first", code=each.code)

    def begun(self, fragment: str, full: str) -> None:
        """It runs here, by this definition."""
        self._forget(fragment)
        self._kept.made[fragment] = full

    def _forget(self, fragment: str) -> None:
        self._kept.forget_stopped(fragment)
        self._numbers.pop(fragment, None)
        self._said_us.pop(fragment, None)

    def removed(self, peer: str, message: Remove, *, foreign: bool) -> bool:
        """Whether a node removes what isn't here any more, or not its own; then it was answered.

        Args:
            foreign: it is of another participant, so it stops nothing else.
        """
        kept = self._kept.stopped.items()
        gone = [name for name, each in kept if (each.node, each.query) == (peer, message.query)]
        for name in gone:
            self._forget(name)
        owner = self._catalog.coordinator_of(message.query)
        if gone and not owner:
            self._saver.send(peer, Reply(request=message.request), after=self._saver.save())
            return True
        if not foreign or owner == peer:
            return False
        text = f"node {peer!r} runs no {message.query[:100]!r} here, and may stop nothing else"
        self._count("E_NO_CONTRACT")
        self._outbox.send(peer, Reply(request=message.request, code="E_NO_CONTRACT", text=text))
        return True

    # --- of our own queries ---------------------------------------------------------------------------

    def heard(self, peer: str, message: StoppedRemote) -> None:
        """A node says that a part of a query of ours has ended there."""
        known = self._catalog.deployment(message.query)
        part = message.fragment, peer
        if known is not None and peer in known.nodes and known.state != REMOVING:
            heard = len(known.stopped) + len(known.ended)
            mine = message.fragment.startswith(f"{message.query}/") and heard < HEARD_MAX
            if mine and message.code and part not in [each[:2] for each in known.ended]:
                known.part_ended(part, message.code, message.why, message.at_us)
                if peer != self._catalog.node:
                    about = {"fragment": message.fragment, "node": peer, "code": message.code}
                    self._outbox.report("error", "ended at its host", **about, why=message.why)
            elif mine and not message.code and part not in known.stopped:
                known.part_stopped(part)
                self._outbox.report("error", "stopped by its host", fragment=message.fragment, node=peer)
        if peer == self._catalog.node:
            return
        self._saver.send(peer, Reply(request=message.request), after=self._saver.save())

    # --- telling ----------------------------------------------------------------------------------------

    def answered(self, node: str, reply: Reply) -> bool:
        """Whether it is about a part that we have stopped; who refuses to hear it is told again."""
        for name, number in list(self._numbers.items()):
            each = self._kept.stopped.get(name)
            if number != reply.request or each is None or each.node != node:
                continue
            if not reply.code and not each.told:
                self._kept.stopped[name] = msgspec.structs.replace(each, told=True)
                self._saver.save()
            return True
        return False

    def tick(self, now_us: int) -> None:
        """Tell who had them begun, where it is there."""
        for name in self._due():
            if now_us < self._said_us.get(name, now_us - AGAIN_US) + AGAIN_US:
                continue
            self._said_us[name] = now_us
            each = self._kept.stopped[name]
            number = self._numbers.setdefault(name, 0) or self._number()
            self._numbers[name] = number
            self._outbox.send(each.node, self._word(number, name, each))

    def _word(self, number: int, fragment: str, each: StoppedPart) -> StoppedRemote:
        return StoppedRemote(
            request=number,
            query=each.query,
            fragment=fragment,
            code=each.code,
            why=each.why,
            at_us=each.at_us,
        )

    def wake_at_us(self) -> int | None:
        """When ``tick`` has work."""
        times = [self._said_us[name] + AGAIN_US if name in self._said_us else 0 for name in self._due()]
        return min(times, default=None)

    def _due(self) -> list[str]:
        if not self._saver.idle:  # Said only once it is on disk; who died before that has stopped nothing.
            return []
        stopped = self._kept.stopped.items()
        return [name for name, each in stopped if not each.told and self._peers.get(each.node) == "up"]
