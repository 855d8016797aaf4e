"""Queries of which nothing can be decided, as too many of their voters are away or don't vote. No IO."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from medusa.nodes.agreement.agreement import Agreement
from medusa.nodes.catalog.catalog import Catalog
from medusa.nodes.placement.voter_majority import no_majority
from medusa.wire.link.automaton import LinkEvent
from medusa.wire.messages.configuration import Configuration
from medusa.wire.outbox import Outbox
from medusa.wire.status_and_metrics import AgreementStatus

__all__ = ["MissingVoters"]


class MissingVoters:
    """As one node hears it.

    Args:
        is_up: whether a node is heard here.
    """

    def __init__(
        self,
        me: str,
        catalog: Catalog,
        agreement: Agreement,
        *,
        outbox: Outbox,
        is_up: Callable[[str], bool],
    ) -> None:
        self._me = me
        self._catalog = catalog
        self._agreement = agreement
        self._outbox = outbox
        self._is_up = is_up
        self._since_us: dict[str, int] = {}
        """Queries of which nothing can be taken over."""
        self._said: set[str] = set()

    def undecided(self, now_us: int) -> dict[str, AgreementStatus]:
        """What of each query waits for the word of voters, and why."""
        stuck, waiting = self.why(), self._agreement.waiting(now_us)
        agreements = self._agreement.status()
        found = {}
        for query in dict.fromkeys((*stuck, *waiting)):
            of, why = waiting.get(query, agreements[query]), stuck.get(query, "")
            waits_us = max(of.waits_us, now_us - self._since_us.get(query, now_us))
            found[query] = replace(
                of,
                waits=("takeovers", *of.waits) if why else of.waits,
                why="; ".join(filter(None, (why, of.why))),
                waits_us=waits_us,
            )
        return found

    def why(self) -> dict[str, str]:
        """Of queries in which this node votes, and too many of whose voters are away for anything to be taken
        over, why that is."""
        found = {}
        for query, kept in self._catalog.configurations.items():
            current = kept.current
            text = no_majority(len(current.voters), self.away(current), self.not_voting(current))
            if text:
                found[query] = text
        return found

    def away(self, current: Configuration) -> tuple[str, ...]:
        """Its voters that aren't heard here; none where this node doesn't vote, who may be nobody's peer."""
        if self._me not in current.voters:
            return ()
        return tuple(node for node in current.voters if node != self._me and not self._is_up(node))

    def not_voting(self, current: Configuration) -> tuple[str, ...]:
        """Its voters that are heard here and don't vote yet."""
        away = self.away(current)
        return tuple(node for node in self._agreement.not_voting(current.query) if node not in away)

    def peer_event(self, now_us: int, event: LinkEvent) -> None:
        """A node came or went: say once when too many voters of a query have gone, and once when enough are
        back."""
        now = self.why()
        self._since_us = {query: self._since_us.get(query, now_us) for query in now}
        for query in sorted(self._said - set(now)):
            self._said.discard(query)
            self._outbox.report("info", "takeovers can be decided again", query=query)
        # A node that starts hears nobody at first: that is no loss.
        for query in sorted(set(now) - self._said) if event is LinkEvent.PEER_DOWN else ():
            self._said.add(query)
            self._outbox.report("warning", "no takeover can be decided", query=query, why=now[query])

    def removed(self, query: str) -> None:
        """The query is no more."""
        self._since_us.pop(query, None)
        self._said.discard(query)
