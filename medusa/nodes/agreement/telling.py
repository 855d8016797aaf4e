"""What was decided of queries is told to whom it concerns, until each says that it has it on disk. No IO."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field

from medusa.nodes.catalog.catalog import Catalog
from medusa.nodes.catalog.persistence import CatalogWriter
from medusa.wire.messages.commands import Reply
from medusa.wire.messages.configuration import NEVER_GIVEN, Configuration, Configure
from medusa.wire.outbox import Outbox

__all__ = ["TELL_LATER_US", "TELL_US", "Announcements", "Telling"]

TELL_US = 100_000
"""Who was told and hasn't answered is told again after this, then after twice as long, and so on."""

TELL_US_MAX = 2_000_000

TELL_LATER_US = 500_000
"""Who was told a configuration tells it to others after this, if they haven't shown by then that they know:
who decided it may have died amid telling."""


@dataclass(slots=True, kw_only=True)
class Telling:
    """One configuration of one query.

    Attributes:
        request: the number of what they are told.
        untold: those that haven't answered.
        knows: those that have, or have shown it otherwise.
        refused: those that refused it and are told again.
        at_us: when they are told again; None: nobody is to be told.
        met_us: node -> when it was last told since it said another number on a link.
    """

    number: int
    request: int
    untold: dict[str, None] = field(default_factory=dict)
    knows: set[str] = field(default_factory=set)
    refused: set[str] = field(default_factory=set)
    met_us: dict[str, int] = field(default_factory=dict)
    at_us: int | None = None
    wait_us: int = TELL_US

    def add(self, nodes: Iterable[str], at_us: int) -> None:
        """They are to be told at this time."""
        new = [node for node in nodes if node not in self.knows]
        self.untold |= dict.fromkeys(new)
        if new:
            self.at_us = at_us if self.at_us is None else min(self.at_us, at_us)

    def told(self, now_us: int, *, reached: bool) -> None:
        """All of them were told, again. ``reached``: one of them at least is heard; others are told when they
        are."""
        self.at_us = now_us + self.wait_us if reached else None
        self.wait_us = min(2 * self.wait_us, TELL_US_MAX)

    def concerns(self, node: str) -> bool:
        """Whether it was told, or is to be."""
        return node in self.untold or node in self.knows

    def meets(self, now_us: int, node: str) -> bool:
        """It says another number on a link; whether it is to be told, which it was not just now."""
        due = now_us - self.met_us.get(node, -TELL_US) >= TELL_US
        if due:
            self.met_us[node] = now_us
        return due

    def refused_by(self, node: str) -> bool:
        """It refuses it, and is told again; whether for the first time."""
        first = node not in self.refused
        self.refused.add(node)
        return first

    def known_by(self, node: str) -> None:
        """It has this configuration, or a newer one."""
        self.knows.add(node)
        self.untold.pop(node, None)
        if not self.untold:
            self.at_us = None


class Announcements:
    """Of the current configurations of a node, which are those in its catalog.

    Args:
        peers: nodes that may be told.
        number: gives numbers for questions to nodes; they grow over all lives.
        is_up: whether a node is heard here.
        written: the catalog's write that has what this node knows of a query.
        audience: nodes that have a part of a query, beside those that its configuration names.
        ended: told of a query that another node says was removed.
        since: the life of a node in which it was so that a query was deployed here; 0: unknown.
        told_abroad: what a peer of another participant is told of a configuration; None: nothing.
    """

    def __init__(
        self,
        me: str,
        peers: Collection[str],
        catalog: Catalog,
        *,
        outbox: Outbox,
        saver: CatalogWriter,
        number: Callable[[], int],
        is_up: Callable[[str], bool],
        written: Callable[[str], int],
        audience: Callable[[str], Collection[str]],
        ended: Callable[[int, str], None],
        since: Callable[[str, str], int],
        told_abroad: Callable[[Configuration, str], Configuration | None],
    ) -> None:
        self._me = me
        self._peers = peers
        self._kept = catalog.configurations
        self._outbox = outbox
        self._saver = saver
        self._number = number
        self._is_up = is_up
        self._written = written
        self._audience = audience
        self._ended = ended
        self._since = since
        self._told_abroad = told_abroad
        self._telling: dict[str, Telling] = {}

    def untold(self, query: str) -> Collection[str]:
        """Nodes that were told the current configuration and haven't said that it is on their disk."""
        telling = self._telling.get(query)
        return () if telling is None else tuple(telling.untold)

    def forget(self, query: str) -> None:
        """The query is removed."""
        self._telling.pop(query, None)

    # --- what is to be told -----------------------------------------------------------------------------

    def begin(self, old: Configuration | None, new: Configuration, *, told_by: str, at_us: int) -> None:
        """Another configuration is current: whom it concerns is to be told at this time.

        Args:
            told_by: who said so; empty: it was decided here.
        """
        query = new.query
        telling = self._telling[query] = Telling(number=new.number, request=self._number())
        telling.knows = {told_by, self._me} - {""}
        named = (*new.nodes(), *(old.nodes() if old is not None else ()), *self._audience(query))
        if new.number > 1 or not told_by:  # The first one is its coordinator's to tell.
            telling.add((node for node in named if self._may_hear(new, node)), at_us)

    def _told(self, configuration: Configuration, node: str) -> Configuration | None:
        """A configuration as a node may hear it; None: it may not."""
        return configuration if node in self._peers else self._told_abroad(configuration, node)

    def _may_hear(self, configuration: Configuration, node: str) -> bool:
        return self._told(configuration, node) is not None

    def tell(self, now_us: int, query: str, node: str) -> None:
        """Tell one node what is current, now and until it answers."""
        telling, current = self._telling_of(query), self._current(query)
        if telling is None or current is None or not self._may_hear(current, node):
            return
        telling.knows.discard(node)
        telling.add((node,), now_us + telling.wait_us)
        self._say(telling, current, node)

    def tell_due(self, now_us: int, query: str) -> None:
        """Tell who is to be told by now."""
        telling, current = self._telling.get(query), self._current(query)
        if telling is None or current is None or telling.at_us is None or now_us < telling.at_us:
            return
        for node in telling.untold:
            self._say(telling, current, node)
        reached = any(self._reaches(current, node) for node in telling.untold)
        telling.told(now_us, reached=reached)

    def _current(self, query: str) -> Configuration | None:
        kept = self._kept.get(query)
        return None if kept is None else kept.current

    def _telling_of(self, query: str) -> Telling | None:
        """Made anew for what an earlier life of this node has learned."""
        current = self._current(query)
        if current is None:
            return None
        if query not in self._telling:
            self._telling[query] = Telling(number=current.number, request=self._number())
        return self._telling[query]

    def _say(self, telling: Telling, current: Configuration, node: str) -> None:
        """The first configuration is decided by our word alone, so our disk has it first."""
        told = self._told(current, node)
        if told is not None and self._is_up(node):
            after = self._written(current.query) if current.number == 1 else 0
            since = self._since(current.query, node)
            message = Configure(request=telling.request, configuration=told, since=since)
            self._saver.send(node, message, after=after)

    def _reaches(self, current: Configuration, node: str) -> bool:
        return self._may_hear(current, node) and self._is_up(node)

    def _concerns(self, query: str, node: str) -> bool:
        """Whether it is named by the current configuration, or has a part."""
        current = self._current(query)
        return current is not None and (node in current.nodes() or node in self._audience(query))

    # --- what others say --------------------------------------------------------------------------------

    def differs(self, now_us: int, query: str, node: str) -> None:
        """On a link a node goes by another number than this one does. It hears ours; if its own is newer its
        answer brings that."""
        telling = self._telling_of(query)
        if telling is not None and self._concerns(query, node) and telling.meets(now_us, node):
            self.tell(now_us, query, node)

    def shown(self, peer: str, query: str, number: int) -> None:
        """A node has said something that it can only say if it knows this number."""
        telling = self._telling.get(query)
        if telling is not None and number >= telling.number:
            telling.known_by(peer)

    def answered(self, now_us: int, peer: str, reply: Reply) -> bool:
        """Take an answer to a ``Configure``; whether it was one."""
        for query, telling in self._telling.items():
            # Others see these numbers too: only who was told answers.
            told = self._may_hear(self._kept[query].current, peer) and telling.concerns(peer)
            if telling.request == reply.request and told:
                first = True
                if peer not in self._peers:  # A host's word is about what it has, never about the query.
                    telling.known_by(peer)
                    return True
                if reply.code == "E_QUERY":  # It still has one of that name which was removed: told again.
                    first = telling.refused_by(peer)
                else:
                    telling.known_by(peer)
                if reply.code == "E_REMOVED":
                    self._ended(now_us, query)
                elif reply.code not in ("", "E_CONFIGURATION", NEVER_GIVEN) and first:
                    about = {"query": query, "node": peer, "code": reply.code}
                    self._outbox.report("warning", "configuration refused", why=reply.text, **about)
                return True
        return False

    # --- time -------------------------------------------------------------------------------------------

    def lost(self, peer: str) -> None:
        """A node is heard no more."""
        for query, told in self._telling.items():
            if self._kept[query].current.parts is not None:
                told.knows.discard(peer)  # It may have been told meanwhile that the query is no more.

    def restarted(self, peer: str) -> None:
        """A node is heard in another life: its disk may be another one."""
        for told in self._telling.values():
            told.knows.discard(peer)

    def came(self, now_us: int, peer: str) -> None:
        """A node is heard: it is told what it may not know."""
        for query, kept in self._kept.items():
            current, telling = kept.current, self._telling.get(query)
            knows = telling is not None and peer in telling.knows
            waits = telling is not None and peer in telling.untold
            concerned = self._concerns(query, peer)
            # The first one is told by who deploys; also by a later life of that. Who has a part tells it to
            # hear whether the query was removed meanwhile.
            may_tell = current.number > 1 or current.coordinator == self._me or current.parts is not None
            if waits or (concerned and not knows and may_tell):
                self.tell(now_us, query, peer)

    def tick(self, now_us: int) -> None:
        """Tell again."""
        for query in list(self._telling):
            self.tell_due(now_us, query)

    def wake_at_us(self) -> int | None:
        """When ``tick`` has work."""
        return min((each.at_us for each in self._telling.values() if each.at_us is not None), default=None)
