"""The host of fragments of a node that has them run elsewhere, in triggers: all that waits is fed together.

A trigger begins when the one before has ended and something waits, so that under load each takes more. The
mind of the node notices nothing: each element is answered, in order, and a checkpoint is the state between
two of them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from medusa.elements import Element, Shed, Silent
from medusa.engine.fragment import Fragment
from medusa.nodes.config.settings import Settings
from medusa.nodes.deploy.admission import Admission, ClusterNow
from medusa.nodes.reports import Forked, FragmentFailed, Ran
from medusa.nodes.spec.fragment_spec import FragmentSpec as Spec
from medusa.runtime.engine_host.budgets import UNBOUNDED
from medusa.runtime.engine_host.host import EngineHost
from medusa.runtime.engine_host.hosted import HostedFragment
from medusa.wire.outbox import Fork, Persist, Regroup, RunFragment, Weigh

__all__ = ["Elsewhere", "FragmentElsewhere", "GatheringHost", "admission_of", "running_elsewhere"]


class ElementOutcome(Protocol):
    """What came of an element: (sink, element); or why nothing of it was taken; and how many rows of it were
    left out."""

    @property
    def outputs(self) -> list[tuple[str, Element]]: ...

    @property
    def refused(self) -> str: ...

    @property
    def shed(self) -> int: ...


class FragmentElsewhere(Protocol):
    """A fragment that runs elsewhere. What a ``Fragment`` is asked, it is asked too."""

    @property
    def waits(self) -> int:
        """Elements that were given and not fed."""

    def give(self, source: str, element: Element | Shed) -> None:
        """Take an element for the next trigger."""

    def trigger(self) -> Sequence[ElementOutcome]:
        """Feed what was given; the answers in order. Raises: the fragment is of no use."""

    def close(self) -> None:
        """Let go of it."""


class Elsewhere(Protocol):
    """Where fragments run."""

    def take(self, name: str, fragment: Fragment) -> FragmentElsewhere:
        """Run it from now on; it is at rest. Raises StateError."""

    def accept(self, spec: Spec) -> None:
        """Whether a fragment that is offered will be run: by what it is and asks for; later, what is paid.

        Raises:
            LinkError: no, with the reason (``E_DECLINED``). Nothing changed.
        """

    def told(self) -> dict[str, Any]:
        """What the catalog and the status say of it."""

    def cluster(self) -> ClusterNow:
        """How it is now: what load there costs follows from it, and whether any is taken."""

    def close(self) -> None:
        """End it."""


@contextlib.contextmanager
def running_elsewhere(
    settings: Settings, make: Callable[[Settings], Elsewhere] | None
) -> Iterator[Elsewhere | None]:
    """Where the fragments of a node run, for as long as it does; None: in the node."""
    made = None if make is None else make(settings)
    try:
        yield made
    finally:
        if made is not None:
            made.close()


def admission_of(elsewhere: Elsewhere) -> Admission:
    """What its node says of what is offered, and of itself."""
    return Admission(elsewhere.accept, elsewhere.told, elsewhere.cluster)


class GatheringHost(EngineHost):
    """A ``EngineHost`` whose fragments run elsewhere.

    Args:
        elsewhere: where.
        more: as for that.
    """

    def __init__(self, elsewhere: Elsewhere, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **{**more, "bounds": UNBOUNDED})  # what they hold isn't held here
        self._elsewhere = elsewhere
        self._away: dict[str, FragmentElsewhere] = {}
        """The engine's thread owns it."""

    def resume(
        self,
        name: str,
        fragment: Fragment | None,
        needed: Mapping[int, tuple[int, ...]],
        logs: Iterable[int] = (),
        *,
        counts: bool = False,
    ) -> None:
        if fragment is not None:
            fragment = self._taken(name, fragment)
        super().resume(name, fragment, needed, logs)  # What runs elsewhere isn't counted here.

    def _taken(self, name: str, fragment: Fragment) -> Any:
        self._away[name] = away = self._elsewhere.take(name, fragment)
        return away  # which has whatever the host asks of a fragment but ``feed`` and ``drain``

    # --- the engine's thread ----------------------------------------------------------------------

    def _work(self, job: Callable[[], None]) -> None:
        super()._work(partial(self._then_trigger, job))

    def _then_trigger(self, job: Callable[[], None]) -> None:
        job()
        if self._engine.idle:
            for name in list(self._away):
                self._trigger(name)

    def _used_bytes(self, running: HostedFragment) -> int:
        return 0

    def _installed(self, name: str, fragment: Fragment) -> Fragment:
        if name in self._away:
            self._away.pop(name).close()
        made: Fragment = self._taken(name, fragment)
        return made

    def _run(self, effect: RunFragment) -> None:
        name = effect.fragment
        running, away = self._running.get(name), self._away.get(name)
        if running is None or away is None or running.failed:
            return
        running.changes()
        if isinstance(effect.element, Silent):
            self._trigger(name)
            super()._run(effect)
            return
        away.give(effect.stream, effect.element)

    def _trigger(self, name: str) -> None:
        """Feed what waits, and say what came of it."""
        running, away = self._running.get(name), self._away.get(name)
        if running is None or away is None or running.failed or not away.waits:
            return
        try:
            answers = away.trigger()
        except Exception as error:
            running.fail()
            self._tell(name, running.life, FragmentFailed(name, f"{type(error).__name__}: {error}"))
            return
        for answer in answers:
            self._tell(name, running.life, Ran(name, answer.outputs, answer.refused, shed=answer.shed))
        self._counts_change(name, running)

    def _persist(self, effect: Persist) -> None:
        self._trigger(effect.fragment)
        super()._persist(effect)

    def _weigh(self, effect: Weigh) -> None:
        self._trigger(effect.fragment)
        super()._weigh(effect)

    def _regroup(self, effect: Regroup, lives: Mapping[str, int]) -> None:
        self._regroups.refuse(effect, "it runs on Spark, by shards of its own: move it to another node first")

    def _copy_aside(self, effect: Regroup, lives: Mapping[str, int]) -> None:
        self._regroup(effect, lives)

    def _fork(self, effect: Fork, life: int) -> None:
        why = "it runs on Spark: its state isn't copied while it runs"
        self._tell(effect.fork, life, Forked(effect.token, effect.fork, why))

    def _close(self, name: str) -> None:
        super()._close(name)
        if name in self._away:
            self._away.pop(name).close()
