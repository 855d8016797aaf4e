"""``medusa pool`` while it runs: asks nodes as a client, does what its keeper decides, says what it did."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from medusa.errors import LinkError, MedusaError
from medusa.nodes.pool.pool_keeper import PoolAct, PoolKeeper, PoolView
from medusa.nodes.pool.provider import NodeProvider, ProvidedNode
from medusa.runtime.client.client import connect
from medusa.runtime.client.federation import Federation
from medusa.runtime.client.status.overview import whole
from medusa.runtime.machine.clock import SystemClock
from medusa.runtime.pool.pool_file import PoolFile, read_pool

__all__ = ["PoolLoop", "opened_pool"]

LOOK_EVERY_S = 0.2
"""How often nodes that end are looked at."""

END_S = 20.0
"""So long is waited for nodes that end; they go on ending by themselves."""


@contextlib.contextmanager
def opened_pool(path: Path, say: Callable[..., None]) -> Iterator[PoolLoop]:
    """A pool that looks when it is told to.

    Args:
        say: called with a level, what there is to say, and fields of it.

    Raises:
        ConfigError: its file isn't right.
        LinkError: no node answers.
    """
    file = read_pool(path)
    provider = file.provider()
    addresses: Any = file.addresses[0] if len(file.addresses) == 1 else list(file.addresses)
    with connect(addresses, **file.keys) as fed:
        yield PoolLoop(file, provider, fed, say)


class PoolLoop:
    """One pool. One thread calls it."""

    def __init__(
        self, file: PoolFile, provider: NodeProvider, fed: Federation, say: Callable[..., None]
    ) -> None:
        self._file, self._provider, self._fed, self._say = file, provider, fed, say
        self._clock = SystemClock()
        self._keeper = PoolKeeper(list(file.nodes), file.rules, file.warm())
        self._ours: set[str] = set()
        self._lost = ""
        self._told: dict[str, str] = {}
        self._short = False

    def dry_run(self) -> list[PoolAct]:
        """Look once, do nothing; what would be done."""
        acts = self._keeper.look(self._clock.monotonic_us(), self._view())
        for node, text in self._keeper.explain().items():
            self._say("info", "node", node=node, now=text)
        if self._keeper.short:
            self._say("warning", "short of nodes", why=self._keeper.short)
        for act in acts:
            self._say("info", f"would {act.what}", node=act.node, why=act.why)
        return acts

    def run(self, over: threading.Event) -> None:
        """Until it is over; then nodes are left, or those that have nothing end, as the file says."""
        while not over.is_set():
            self._turn()
            over.wait(self._file.fields.every_us / 1e6)
        if self._file.fields.at_end == "stop":
            self._stop()
        elif left := sorted(self._ours):
            self._say("info", "leaves nodes running", nodes=", ".join(left))

    def _turn(self) -> None:
        try:
            view = self._view()
        except MedusaError as error:
            if error.message != self._lost:
                self._say("warning", "nothing is known", why=error.message)
            self._lost = error.message
            return
        self._lost = ""
        for act in self._keeper.look(self._clock.monotonic_us(), view):
            self._do(act)
        if self._keeper.short and not self._short:
            self._say("warning", "short of nodes", why=self._keeper.short)
        self._short = bool(self._keeper.short)
        for node, text in self._keeper.explain().items():
            kind = text.partition(" since ")[0].partition(" for ")[0]
            if self._told.get(node) != kind:
                self._say("info", "node", node=node, now=text)
            self._told[node] = kind

    def _view(self) -> PoolView:
        """How all are now.

        Raises:
            LinkError: our node doesn't answer, or the provider can't say.
            DataError: what a node says can't be read.
        """
        placed: dict[str, list[str]] = {}
        for each in self._fed.placed():
            placed.setdefault(each["name"], []).append(each["node"])
        statuses = [whole(status) for status in self._fed.statuses(all=True, silent=False)]
        return PoolView(statuses=statuses, placed=placed, provided=self._provided())

    def _provided(self) -> Mapping[str, ProvidedNode]:
        """How nodes are, as their provider knows.

        Raises:
            LinkError: it can't say.
        """
        try:
            return dict(self._provider.nodes(self._clock.monotonic_us()))
        except Exception as error:  # A user's may raise anything.
            text = f"the provider can't say how its nodes are: {type(error).__name__}: {error}"
            raise LinkError(text, hint="it is asked again", code="pool.provider") from error

    def _do(self, act: PoolAct) -> None:
        now_us = self._clock.monotonic_us()
        try:
            if act.what == "acquire":
                self._provider.acquire(now_us, act.node)
                self._ours.add(act.node)
            else:
                if why := self._keeper.still_held(act.node, self._view()):
                    self._say("info", "doesn't release", node=act.node, why=why)
                    return
                self._provider.release(now_us, act.node)
                self._ours.discard(act.node)
        except Exception as error:  # A user's provider may raise anything; a node may not answer.
            why = error.message if isinstance(error, MedusaError) else f"{type(error).__name__}: {error}"
            self._keeper.refused(now_us, act, why)
            self._say("warning", f"couldn't {act.what}", node=act.node, why=why)
        else:
            self._say("info", act.what, node=act.node, why=act.why)

    def _stop(self) -> None:
        """End those that we started and that have nothing."""
        for node in sorted(self._ours):
            self._do(PoolAct(what="release", node=node, why="the pool ends"))
        deadline_us = self._clock.monotonic_us() + round(END_S * 1e6)
        wait = threading.Event()
        while (now_us := self._clock.monotonic_us()) < deadline_us:
            states = [each.state for each in self._provider.nodes(now_us).values()]
            if "stopping" not in states:
                break
            wait.wait(LOOK_EVERY_S)
        if left := sorted(self._ours):
            self._say("info", "leaves nodes running", nodes=", ".join(left))
