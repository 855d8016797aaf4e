"""Fragments whose owner has nothing of them: who may have their state still, or that nobody has. No IO.

A fragment is lost for good when its owner and all that stood by lose what they hold at once: a disk each, or
a disk here and a process there. What was acknowledged is then in no window any more, and nobody can count it:
so it is said until the query is undeployed, by the log, the status and a metric.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping

from medusa.wire.messages.configuration import Configuration, Replicas
from medusa.wire.outbox import Outbox
from medusa.wire.status_and_metrics import StatelessStatus

__all__ = ["LastCopies"]


class LastCopies:
    """As one node knows it.

    Args:
        without_state: fragment and epoch that are ours and that we can't run -> whether we may have begun.
        emptied: fragment and epoch of which the owner says that it was on a disk that is lost.
        could_have: whether we could take a fragment over, or run it.
        keeps: whether a whole checkpoint of it is on our disk, be it an older one.
    """

    def __init__(
        self,
        me: str,
        *,
        outbox: Outbox,
        configuration: Callable[[str], Configuration | None],
        without_state: Callable[[], Mapping[tuple[str, int], bool]],
        emptied: Callable[[], Collection[tuple[str, int]]],
        could_have: Callable[[str], bool],
        keeps: Callable[[str], bool],
    ) -> None:
        self._me = me
        self._outbox = outbox
        self._configuration = configuration
        self._without_state = without_state
        self._emptied = emptied
        self._could_have, self._keeps = could_have, keeps
        self._said: set[tuple[str, int]] = set()
        """Fragment and epoch of which we said that nobody has it."""

    def status(self) -> dict[str, StatelessStatus]:
        """By fragment."""
        return {
            each.fragment: StatelessStatus(
                query=each.fragment.partition("/")[0],
                epoch=each.epoch,
                owner=each.owner,
                streams=each.streams,
                reads=each.reads,
                may_have_it=others,
                lost=not others,
                why=_why(others),
            )
            for each, others in self._stateless()
        }

    def tick(self) -> None:
        """Say what is lost, once."""
        lost = {(each.fragment, each.epoch): each for each, others in self._stateless() if not others}
        for about, each in lost.items():
            if about not in self._said:
                self._outbox.report(
                    "error",
                    "last copy lost",
                    fragment=each.fragment,
                    epoch=each.epoch,
                    streams=", ".join(each.streams),
                    why=_why(()),
                )
        self._said = set(lost)

    def _stateless(self) -> Iterator[tuple[Replicas, tuple[str, ...]]]:
        """Who has it by what is decided, and the nodes that may have its state."""
        for (name, epoch), began in self._without_state().items():
            each = self._current(name, epoch)
            if each is not None and each.owner == self._me and not self._could_have(name):
                others = (*each.secondaries, *(() if began else each.predecessors))
                if others or not self._keeps(name):  # Else an operator may take that up.
                    yield each, others
        for name, epoch in self._emptied():
            each = self._current(name, epoch)
            if each is not None and self._me in each.secondaries and not self._could_have(name):
                others = (*each.secondaries, *each.predecessors)
                yield each, tuple(node for node in others if node != self._me)

    def _current(self, fragment: str, epoch: int) -> Replicas | None:
        configuration = self._configuration(fragment.partition("/")[0])
        found = None if configuration is None else configuration.replicas(fragment)
        return found if found is not None and found.epoch == epoch and not found.gone else None


def _why(others: Collection[str]) -> str:
    if not others:
        return "no node has its state any more: undeploy the query, and deploy it again"
    return f"its owner has lost its state; {' or '.join(others)} may have it, and goes on once it is heard"
