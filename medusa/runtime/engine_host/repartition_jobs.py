"""What a host does when a box of its fragments is split, merged or weighed: it takes their states."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from medusa.engine.fragment import Fragment
from medusa.engine.regrouping import Regrouped
from medusa.engine.splitting import weighing
from medusa.engine.state.background_copy import BackgroundCopy
from medusa.errors import MedusaError, StateError
from medusa.nodes.reports import Completion, Remade, Weighed
from medusa.ports import Clock
from medusa.query.boxes import Graph
from medusa.runtime.engine_host.hosted import HostedFragment
from medusa.runtime.engine_host.remaking import remade, remade_of
from medusa.wire.outbox import Regroup, Weigh

__all__ = ["Begin", "RepartitionJobs", "why_of"]

Job = Callable[[], None]
Begin = Callable[[Regroup, Mapping[str, int], Regrouped, Mapping[str, BackgroundCopy]], None]
"""Takes the new fragments, their lives, and copies of those that were made beside."""


class RepartitionJobs:
    """Of one host; the engine's thread calls it.

    Args:
        running: the fragments of the host.
        tell: says of the node itself what was done.
        give: does a job in the engine's thread after all that it was given before.
        beside: does a job in a thread beside that.
        begin: takes the new fragments.
    """

    def __init__(
        self,
        running: Mapping[str, HostedFragment],
        clock: Clock,
        *,
        tell: Callable[[Completion], None],
        give: Callable[[Job], None],
        beside: Callable[[Job], None],
        begin: Begin,
    ) -> None:
        self._running = running
        self._clock = clock
        self._tell = tell
        self._give = give
        self._beside = beside
        self._begin = begin

    def at_rest(self, effect: Regroup, lives: Mapping[str, int]) -> None:
        """The old ones rest: the new ones take their states."""
        try:
            olds: dict[str, Fragment | None] = {name: self._hosted(name)[1] for name in effect.gone}
            found = remade(effect, olds, self._clock)
        except Exception as error:
            self.refuse(effect, why_of(error))
            return
        self._begin(effect, lives, found, {})

    def refuse(self, effect: Regroup, why: str) -> None:
        """Nothing came of it, and the old ones are as they were."""
        self._tell(Remade(effect.token, {}, [], why))

    def aside(self, effect: Regroup, lives: Mapping[str, int]) -> None:
        """The state of the old ones is copied, as for a checkpoint; the new ones are made beside them."""
        states: dict[str, tuple[Graph, BackgroundCopy]] = {}
        left = set(effect.gone)

        def copied(name: str, why: str) -> None:
            left.discard(name)
            if why:
                self.refuse(effect, why)
            elif not left:
                self._beside(lambda: self._make_aside(effect, lives, states))

        try:
            for name in effect.gone:
                running, fragment = self._hosted(name)
                states[name] = fragment.graph, running.pieces.of(fragment)
        except Exception as error:
            self.refuse(effect, why_of(error))
            return
        for name, (_, copying) in states.items():
            self._running[name].pieces.begin(copying, partial(copied, name))

    def _make_aside(
        self, effect: Regroup, lives: Mapping[str, int], states: Mapping[str, tuple[Graph, BackgroundCopy]]
    ) -> None:
        """In the thread beside the engine's."""
        try:
            found, begun = remade_of(effect, states, self._clock)
        except Exception as error:
            self.refuse(effect, why_of(error))
            return
        self._give(lambda: self._begin(effect, lives, found, begun))

    def weigh(self, effect: Weigh) -> None:
        """The state is copied as for a checkpoint, and looked at beside: a million keys take a while."""

        def copied(why: str) -> None:
            self._beside(lambda: self._weighed(effect, graph, copying, why))

        try:
            running, fragment = self._hosted(effect.fragment)
            graph, copying = fragment.graph, running.pieces.of(fragment)
        except Exception as error:
            self._tell(Weighed(effect.token, (), why_of(error)))
            return
        running.pieces.begin(copying, copied)

    def _weighed(self, effect: Weigh, graph: Graph, copying: BackgroundCopy, why: str) -> None:
        try:
            if why:
                raise StateError(why, code="state.failed")
            copy = Fragment.restore(graph, copying.files(), clock=self._clock)
            self._tell(Weighed(effect.token, weighing(copy, effect.box, effect.parts)()))
        except Exception as error:
            self._tell(Weighed(effect.token, (), why_of(error)))

    def _hosted(self, name: str) -> tuple[HostedFragment, Fragment]:
        """Raises StateError: it isn't here any more, or has failed."""
        if (running := self._running.get(name)) is None:
            raise StateError(f"fragment {name!r} was removed", code="state.gone")
        if running.failed or running.fragment is None:
            raise StateError(f"fragment {name!r} has failed", code="state.failed")
        return running, running.fragment


def why_of(error: BaseException) -> str:
    """In words."""
    return str(error) if isinstance(error, MedusaError) else f"{type(error).__name__}: {error}"
