"""A node put together from its configuration: the same one as a process and inside a program."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from medusa.errors import ConfigError, StateError
from medusa.nodes.config.settings import Settings
from medusa.nodes.node import NodeMind
from medusa.nodes.reports import Listening
from medusa.nodes.scaling.policy import ScalePolicy, ScaleRules, WorkPolicy
from medusa.runtime.contracts.content import check_content
from medusa.runtime.contracts.receipt_files import ReceiptFolder
from medusa.runtime.engine_host.budgets import bounds_of
from medusa.runtime.engine_host.gathering import Elsewhere, GatheringHost, admission_of
from medusa.runtime.engine_host.host import EngineHost
from medusa.runtime.exposition.server import MetricsServer, node_figures
from medusa.runtime.machine.clock import SystemClock
from medusa.runtime.machine.usage import process_usage
from medusa.runtime.node.configuration import NodeConfig
from medusa.runtime.node.graph_parser import GraphParser
from medusa.runtime.node.loop import NodeLoop
from medusa.runtime.node.node_keys import load_keys
from medusa.runtime.node.reloading import papers_of, rules_again
from medusa.runtime.node.reports import Reports
from medusa.runtime.repair.startup import recover
from medusa.runtime.store.node_store import open_store
from medusa.runtime.transport.connection import let_go
from medusa.runtime.transport.first_use import Introduction
from medusa.runtime.transport.zeromq import Transport
from medusa.wire.link.session import PROMPT
from medusa.wire.outbox import ReportLine

__all__ = ["Assembled", "assembled"]

STOP_TIMEOUT_US = 10_000_000
"""The last checkpoint has so long. Too short: a slow disk costs what came since the one before."""

ENDING_S = 1.0
"""What the engine and the disk still have under way then has so long."""


@dataclass(frozen=True, slots=True)
class Assembled:
    """A node that listens, and doesn't run yet.

    Attributes:
        address: where it listens.
        server_key: the public half of its key; empty: it has none.
        leave_to_parent: in a forked child, lets go of its files and addresses.
    """

    name: str
    address: str
    server_key: str
    loop: NodeLoop
    leave_to_parent: Callable[[], None]

    def stop(self) -> None:
        """End ``run``; from any thread."""
        self.loop.stop()

    def run(self) -> None:
        """Until ``stop``; then the last checkpoint is on disk.

        Raises:
            StateError: it couldn't be written in time.
        """
        if not self.loop.run(stop_timeout_us=STOP_TIMEOUT_US):
            raise StateError(
                f"node {self.name!r}: the last checkpoint could not be written",
                hint="peers and publishers keep what it didn't cover and resend it at the next start",
                code="state.last",
            )


@contextlib.contextmanager
def assembled(
    settings: Settings,
    *,
    config: NodeConfig,
    reports: Reports,
    elsewhere: Elsewhere | None = None,
    rebuild: bool = False,
    scale_policy: Callable[[ScaleRules], ScalePolicy] = WorkPolicy,
) -> Iterator[Assembled]:
    """Everything of a node, closed again in the end, however that comes.

    Args:
        config: what ``settings`` were read from, to read keys and rules again.
        elsewhere: runs its fragments; None: the node does.
        rebuild: its disk was lost: it gets what its peers know of it.
        scale_policy: makes what decides in how many parts boxes of a query run; asked only with [scale].

    Raises:
        ConfigError: a key can't be used, figures can't be served, there is ``[spark]`` and no elsewhere,
            there is no folder of contracts, or what keeps nothing is to be rebuilt.
        StateError: the data folder can't be used.
        LinkError: it can't listen at its address.
    """
    if settings.spark is not None and elsewhere is None:
        raise ConfigError(
            f"node {settings.name!r} has a table [spark], so its fragments run on Spark",
            hint="medusa spark-participant CONFIG.toml, or md.spark.participant(config); or remove [spark]",
            code="config.spark",
        )
    if rebuild and (settings.forgets or not settings.peers):
        why = "keeps nothing over its end" if settings.forgets else "has no peers that could know of it"
        raise ConfigError(
            f"node {settings.name!r} can't be rebuilt: it {why}",
            hint="start it without --rebuild",
            code="config.rebuild",
        )
    keys = load_keys(settings)
    clock = SystemClock()
    with contextlib.ExitStack() as stack:
        unused = stack.enter_context(contextlib.ExitStack())
        store = open_store(settings, clock)
        unused.callback(store.close)
        found = recover(
            store.groups,
            clock,
            node=settings.name,
            warn=reports.warn,
            journal=store.journal,
            rebuild=rebuild,
        )
        brain = NodeMind(
            settings,
            incarnation=found.incarnation,
            catalog=found.catalog,
            saved=found.saved,
            first_token=found.first_token,
            verify=keys.verify,
            certificate=keys.certificate,
            note_key=keys.own.derived("notes") if keys.own is not None else b"",
            session=PROMPT,
            signer=keys.signer,
            papers=papers_of(settings),
            content=check_content,
            accepting=None if elsewhere is None else admission_of(elsewhere),
            scale_policy=scale_policy,
        )
        transport = Transport(
            listen=settings.listen,
            peers=settings.peers,
            key=keys.own,
            lanes=settings.links.connections,
            striped=settings.links.striped,
            limits=settings.limits,
            # Whoever calls while the rest is put together would be told that its key is unknown.
            trusted=() if brain.guard is None else brain.guard.registry.keys(),
        )
        stack.callback(transport.close)
        addresses = [transport.endpoint]
        if settings.security is not None and settings.security.introduce and keys.own is not None:
            introduction = Introduction(settings.security.introduce, keys.own.public)
            stack.callback(introduction.close)
            addresses.append(introduction.address)
            reports.report(ReportLine(level="info", what=f"introduces itself at {introduction.address}"))
        host = _host_of(elsewhere)(
            store.groups,
            clock,
            wake=transport.wake,
            counts=settings.forgets,
            journal=store.journal,
            bounds=bounds_of(settings.limits),
        )
        disk = unused.pop_all()
        stack.callback(host.stop, timeout_s=ENDING_S, last=disk.close)
        found.resume(host)
        parser = GraphParser(wake=transport.wake)
        stack.callback(parser.stop, ENDING_S)
        reload = partial(rules_again, config, settings)
        loop = NodeLoop(
            brain,
            transport,
            host,
            clock,
            parser=parser,
            say=reports.report,
            reload=reload,
            papers=papers_of,
            receipts=None if settings.market is None else ReceiptFolder(settings.market.contracts).add,
            usage=lambda: process_usage(host.engine_us(), host.held()),
        )
        if settings.metrics is not None:
            server = MetricsServer(*settings.metrics)
            stack.callback(server.close)
            server.serve(partial(node_figures, loop))
            reports.report(ReportLine(level="info", what=f"metrics at http://{server.address}/metrics"))

        def leave() -> None:
            disk.close()
            for address in addresses:
                let_go(address)

        server_key = "" if keys.own is None else keys.own.public
        brain.report(clock.monotonic_us(), Listening(transport.endpoint, server_key))
        yield Assembled(settings.name, transport.endpoint, server_key, loop, leave)


def _host_of(elsewhere: Elsewhere | None) -> Callable[..., EngineHost]:
    return EngineHost if elsewhere is None else partial(GatheringHost, elsewhere)
