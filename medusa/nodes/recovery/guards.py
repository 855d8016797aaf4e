"""Whether what others stand by for may be split or merged, and when. No IO."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from medusa.errors import LinkError
from medusa.nodes.agreement.agreement import Agreement
from medusa.nodes.catalog.catalog import Catalog
from medusa.nodes.recovery.handovers import Handovers
from medusa.nodes.recovery.regrouping import crowded, is_alone
from medusa.nodes.recovery.succession import Succession
from medusa.nodes.spec.fragment_spec import FragmentSpec
from medusa.wire.messages.configuration import Replicas

__all__ = ["Guards"]


class Guards:
    """Of the fragments of one node, for those that are to be split or merged."""

    def __init__(
        self,
        me: str,
        catalog: Catalog,
        agreement: Agreement,
        handovers: Handovers,
        succession: Succession,
        is_up: Callable[[str], bool],
    ) -> None:
        self._me = me
        self._catalog = catalog
        self._agreement = agreement
        self._handovers = handovers
        self._succession = succession
        self._is_up = is_up

    def check(self, spec: FragmentSpec) -> None:
        """Whether others may leave a fragment of ours to us alone.

        Raises:
            LinkError: not now.
        """
        if not spec.standby:
            return
        name = spec.name
        replicas = self._replicas(name)
        again = "try again in a moment"
        if replicas is not None and replicas.abroad:
            text = f"fragment {name!r} runs here as a guest, for another participant"
            raise LinkError(text, hint="its owner splits it at home", code="E_NO_CONTRACT")
        if replicas is None:
            text = f"it isn't decided yet who stands by for fragment {name!r}"
            raise LinkError(text, hint=again, code="E_BUSY")
        if self._handovers.going(name) or replicas.owner != self._me or self._succession.changes(name):
            raise LinkError(f"fragment {name!r} is being moved", hint=again, code="E_BUSY")
        if silent := self._handovers.majority_away(name, self._me):
            hint = "order it again when more than half of them are there"
            raise LinkError(silent, hint=hint, code="E_STANDBY")

    def check_room(self, gone: Collection[str], made: Sequence[FragmentSpec]) -> None:
        """Whether the configuration of their query can name these instead of those.

        Raises:
            LinkError: it can't.
        """
        guarded = [spec for spec in made if spec.standby]
        current = self._agreement.current(guarded[0].query) if guarded else None
        if current is not None and (why := crowded(current, guarded, gone, self._catalog.epoch)):
            text = f"who stands by for the parts can't be written down: there would be {why}"
            raise LinkError(text, hint="split it in fewer parts", code="E_LIMIT")

    def followers(self, fragment: str) -> tuple[str, ...]:
        """Nodes that stand by for a fragment of ours, or may."""
        replicas = self._replicas(fragment)
        return () if replicas is None else tuple(node for node in replicas.members if node != self._me)

    def is_up(self, node: str) -> bool:
        """Whether a node is heard here."""
        return self._is_up(node)

    def lost(self, fragment: str) -> bool:
        """Whether another node has it by now."""
        replicas = self._replicas(fragment)
        return replicas is not None and replicas.owner != self._me

    def left(self, fragment: str) -> bool:
        """Whether it is decided that nobody but us may have it."""
        replicas = self._replicas(fragment)
        return replicas is None or (replicas.owner == self._me and is_alone(replicas))

    def _replicas(self, fragment: str) -> Replicas | None:
        """What is decided of a fragment; None: nobody stands by for it."""
        current = self._agreement.current(fragment.partition("/")[0])
        replicas = None if current is None else current.replicas(fragment)
        if replicas is not None and replicas.epoch < self._catalog.epoch(fragment):
            return None  # That was an earlier fragment of this name.
        return replicas
