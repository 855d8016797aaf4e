"""``md.node``: a whole node inside a program, in a thread of its own.

Ctrl-C comes between any two steps of the program's main thread (``client_loop`` says what follows from
that). So callers share only plain locks with the node's thread, taken by ``with`` alone, and that thread
does whatever must be done whole: it makes the node, and takes it apart again when it is told to end, also
where nobody waits for it any more.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import weakref
from collections.abc import Callable
from types import TracebackType
from typing import Any

from medusa.errors import ConfigError, LinkError, MedusaError, StateError
from medusa.nodes.config.settings import Settings
from medusa.nodes.scaling.policy import ScalePolicy, ScaleRules, WorkPolicy
from medusa.runtime.client.client import connect
from medusa.runtime.client.federation import Federation
from medusa.runtime.engine_host.gathering import Elsewhere, running_elsewhere
from medusa.runtime.keys.client_keys import KeyGiven
from medusa.runtime.machine.notify import RING_MAX_S, Notifiers
from medusa.runtime.node.assembly import Assembled, assembled
from medusa.runtime.node.configuration import NodeConfig, import_functions, load_settings
from medusa.runtime.node.reloading import rules_again
from medusa.runtime.node.reports import Reports
from medusa.units import Duration

__all__ = ["Node", "node"]

LOGGER = logging.getLogger("medusa.node")
LEVELS = {"info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
HERE = {"tcp://0.0.0.0:": "tcp://127.0.0.1:", "tcp://[::]:": "tcp://[::1]:"}
"""Who listens everywhere is reached on this machine there."""


def node(
    config: NodeConfig,
    *,
    report: Callable[[str, str], None] | None = None,
    scale_policy: Callable[[ScaleRules], ScalePolicy] = WorkPolicy,
) -> Node:
    """A node inside this program; ``with md.node(config) as node:`` runs it, and ``async with`` does.

    It is what ``medusa node`` is, in a thread of its own: its data folder, its peers and clients are the
    same, and functions that this program registers can be used by what is deployed there. Signals stay the
    program's. Nothing happens before ``with`` or ``start``.

    Args:
        config: a file as for ``medusa node``; or a dict of the same fields, where relative paths are
            relative to the working directory.
        report: called with a level (``info``, ``warning``, ``error``) and a line, in the node's thread,
            which waits for it; None: the logger ``medusa.node`` is told.
        scale_policy: where the configuration has ``[scale]``: called for each query that this node
            coordinates with the marks of that table, it gives what decides in how many parts boxes run
            (``md.ScalePolicy``). Called in the node's thread: what takes long holds up the node, and what it
            raises ends it.
    """
    return Node(config, report=report, scale_policy=scale_policy)


class Node:
    """A node inside this program; ``md.node`` makes it. Any thread may call."""

    def __init__(
        self,
        config: NodeConfig,
        *,
        report: Callable[[str, str], None] | None = None,
        elsewhere: Callable[[Settings], Elsewhere] | None = None,
        scale_policy: Callable[[ScaleRules], ScalePolicy] = WorkPolicy,
    ) -> None:
        self._config = config
        self._scale_policy = scale_policy
        self._elsewhere = elsewhere
        self._report = report
        self._lock = threading.RLock()  # Handlers of signals may call what they interrupt.
        self._bells = Notifiers()
        self._settings: Settings | None = None
        self._node: Assembled | None = None
        self._thread: threading.Thread | None = None
        self._failure: MedusaError | None = None
        self._asked = self._launched = self._closing = self._ended = self._told = self._forked = False
        _NODES.add(self)

    # --- the thread -------------------------------------------------------------------------------

    def _drive(self, settings: Settings) -> None:
        try:
            self._live(settings)
        except BaseException as error:
            self._failure = _failure(settings.name, error)
            if self._node is not None:
                self._tell("error", f"the node has stopped: {self._failure}")
        finally:
            with self._lock:
                self._ended = True
                self._bells.ring()

    def _live(self, settings: Settings) -> None:
        if self._closing:
            return
        with (
            running_elsewhere(settings, self._elsewhere) as there,
            assembled(
                settings,
                config=self._config,
                reports=Reports(self._tell),
                elsewhere=there,
                scale_policy=self._scale_policy,
            ) as made,
        ):
            with self._lock:
                self._node = made
                if self._closing:
                    made.stop()
                self._bells.ring()
            made.run()

    def _tell(self, level: str, line: str) -> None:
        if self._report is None:
            LOGGER.log(LEVELS[level], "%s: %s", self.name, line)
            return
        try:
            self._report(level, line)
        except Exception:
            LOGGER.exception("%s: report= failed, on %s: %s", self.name, level, line)

    # --- its life ---------------------------------------------------------------------------------

    def start(self) -> Node:
        """Run it until ``close``; it listens when this returns.

        Raises:
            ConfigError: the configuration can't be read or isn't right.
            StateError: the data folder can't be used, or this node was started before.
            LinkError: it can't listen at its address.
        """
        self._refuse_again()
        try:
            self._launch(self._read())
            self._wait(self._begun)
            self._check()
            return self
        except BaseException:
            self._leave()
            self._wait(self._over)
            self._told = True
            raise

    def _refuse_again(self) -> None:
        with self._lock:
            if self._asked or self._closing:
                text = "this node was started, or closed, before"
                raise StateError(text, hint="md.node(config) makes another", code="node.again")
            self._asked = True

    def _read(self) -> Settings:
        # Not in the node's thread: a module that starts a node while it is imported could name itself.
        settings = load_settings(self._config)
        import_functions(settings)
        self._settings = settings
        return settings

    def _launch(self, settings: Settings) -> None:
        name = f"medusa-node-{settings.name}"
        self._thread = threading.Thread(target=self._drive, args=(settings,), name=name, daemon=True)
        self._thread.start()
        self._launched = True  # Interrupted before, it ends by itself.

    def _begun(self) -> bool:
        return self._node is not None or self._ended

    def _over(self) -> bool:
        return self._ended or not self._launched

    def _leave(self) -> None:
        """Begin to end; from any thread, in no time."""
        with self._lock:
            self._closing = True
            if self._node is not None and not self._ended:
                self._node.stop()

    def close(self) -> None:
        """End it, after a last checkpoint. A second time does nothing.

        Where this is interrupted, the node ends all the same.

        Raises:
            StateError: the last checkpoint couldn't be written (peers and publishers keep what it didn't
                cover), or the node had stopped by itself.
        """
        if self._forked:
            return
        self._leave()
        if threading.current_thread() is not self._thread:  # A report may be what calls.
            self._wait(self._over)
            self._raise_once()

    def _raise_once(self) -> None:
        if self._failure is not None and not self._told:
            self._told = True
            raise self._failure

    @property
    def alive(self) -> bool:
        """It runs: was started, and has not ended."""
        return self._node is not None and not (self._ended or self._forked)

    @property
    def failed(self) -> MedusaError | None:
        """Why it ended without being told to, or without its last checkpoint; None: it did not."""
        return self._failure

    # --- what it is -------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """What its configuration calls it; empty before that was read."""
        return "" if self._settings is None else self._settings.name

    @property
    def address(self) -> str:
        """Where it listens, with the port that it took.

        Raises:
            StateError: it isn't running; so of all that follows.
        """
        return self._running().address

    def status(self) -> dict[str, Any]:
        """What it runs and how it goes, as ``medusa status`` says it: docs/nodes.md describes each field."""
        made = self._running()
        if threading.current_thread() is self._thread:
            text = "status() in report= would wait for itself"
            raise StateError(text, hint="ask in another thread", code="node.thread")
        found: list[dict[str, Any]] = []

        def answer(status: dict[str, Any]) -> None:
            found.append(status)
            with self._lock:
                self._bells.ring()

        made.loop.tell(answer)
        self._wait(lambda: bool(found) or self._ended)
        if not found:
            self._check()
        return found[0]

    def reload(self) -> None:
        """Read again who may do what, as SIGHUP makes ``medusa node`` do; returns when it counts.

        Raises:
            ConfigError: the configuration isn't right, or something else in it was changed; all stays as
                it was.
        """
        made, settings = self._running(), self._settings
        assert settings is not None
        if settings.security is None:
            text = f"node {settings.name!r} has no [keys]: nothing of its configuration is read again"
            raise ConfigError(text, hint="close it and start another", code="config.reload")
        rules_again(self._config, settings)
        made.loop.reload()
        self.status()

    def connect(self, timeout: Duration = "5s", *, key: KeyGiven | None = None) -> Federation:
        """A client of this node, as ``md.connect`` makes it.

        Args:
            timeout: how long to wait for each answer.
            key: of the client, where the node has keys.

        Raises:
            LinkError: the node doesn't admit us.
        """
        made = self._running()
        if key is not None and not made.server_key:
            text = f"connect: key= is given, and node {made.name!r} has no keys"
            raise LinkError(text, hint="connect without", code="link.keys")
        address = made.address
        for everywhere, here in HERE.items():
            address = address.replace(everywhere, here, 1)
        return connect(address, timeout, key=key, server_key=made.server_key or None)

    def _running(self) -> Assembled:
        self._check()
        if self._node is None:
            text = "this node was not started"
            raise StateError(text, hint="with md.node(config) as node: ...", code="node.start")
        return self._node

    def _check(self) -> None:
        if self._forked:
            text = f"node {self.name!r} belongs to the process that was forked"
            raise StateError(text, hint="start a node after the fork", code="node.forked")
        if self._failure is not None:
            raise self._failure
        if self._closing or self._ended:
            text = f"node {self.name!r} was closed"
            raise StateError(text, hint="md.node(config) makes another", code="node.closed")

    # --- waiting ----------------------------------------------------------------------------------

    def _wait(self, done: Callable[[], bool]) -> None:
        while True:
            with self._lock:
                if done():
                    return
                bell = self._bells.of_thread()
            bell.acquire(timeout=RING_MAX_S)

    async def _wait_in_loop(self, done: Callable[[], bool]) -> None:
        while True:
            with self._lock:
                if done():
                    return
                bell = self._bells.of_task()
            await bell.wait()

    # --- with -------------------------------------------------------------------------------------

    def __enter__(self) -> Node:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except MedusaError as failure:
            _beside(error, failure)

    async def __aenter__(self) -> Node:
        self._refuse_again()
        try:
            self._launch(await asyncio.to_thread(self._read))
            await self._wait_in_loop(self._begun)
            self._check()
            return self
        except GeneratorExit:  # Nothing can be waited for any more.
            self._leave()
            raise
        except BaseException:
            self._leave()
            await self._wait_in_loop(self._over)
            self._told = True
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._forked:
            return
        self._leave()
        await self._wait_in_loop(self._over)
        try:
            self._raise_once()
        except MedusaError as failure:
            _beside(error, failure)

    def __repr__(self) -> str:
        made = self._node
        return f"<medusa.Node {self.name or '?'}, {made.address if made and self.alive else 'not running'}>"

    # --- fork -------------------------------------------------------------------------------------

    def _after_fork(self) -> None:
        """In the child, which has the node's files but none of its threads; locks may be held by those."""
        self._lock, self._bells = threading.RLock(), Notifiers()
        if self._asked and not self._ended:
            self._forked = True
            if self._node is not None:
                self._node.leave_to_parent()


def _failure(name: str, error: BaseException) -> MedusaError:
    if isinstance(error, MedusaError):
        return error
    made = StateError(
        f"node {name!r} has stopped: {type(error).__name__}: {error}",
        hint="started again, it goes on from its last checkpoint",
        code="node.failed",
    )
    made.__cause__ = error
    return made


def _beside(error: BaseException | None, failure: MedusaError) -> None:
    """Raise what the end of a ``with`` block brought; where the block failed already, note it there."""
    if error is None:
        raise failure
    if error is not failure:
        error.add_note(f"and the node: {failure}")


_NODES: weakref.WeakSet[Node] = weakref.WeakSet()


def _after_fork() -> None:
    for each in list(_NODES):
        each._after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
