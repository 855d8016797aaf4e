"""Whole nodes and clients in one world. One seed, one run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from medusa.nodes.config.settings import Limits, Settings
from medusa.nodes.config.settings_delay import DelayRules
from medusa.nodes.config.settings_load import LoadRules
from medusa.nodes.config.settings_scale import ScaleSettings
from medusa.nodes.config.settings_streams import StreamRule
from medusa.ports import Buffer
from medusa.sim.actors.client import Client
from medusa.sim.actors.node import NodeMachine
from medusa.sim.world.keyring import Keyring
from medusa.sim.world.machine import Machine
from medusa.sim.world.network import Faults, Network
from medusa.sim.world.virtual_time import SimulationError, World
from medusa.wire.messages.commands import Reply

__all__ = ["Federation"]

EVENTS_MAX = 3_000_000


class Federation:
    """Nodes and clients. A ``FaultStage``: faults can be injected.

    Args:
        seed: of the world; or a world.
        names: of the nodes.
        peers: node -> nodes it knows; None: all know each other.
        faults: how bad the network is from the start.
        limits: of every node.
        memory: nodes that keep nothing over their end.
        streams: rules of every node for the streams that leave it.
        delay: rules of every node for what waits in a failure.
        load: rules of every node for how it measures its load.
        scale: by which every node splits and merges boxes by itself; None: none does.
        sync_us: what a synced write takes.
        job_us: what one step of the engine takes, about.
        watch: called after every turn of every node.
        keyring: keys of all; None: names are believed.
    """

    def __init__(
        self,
        seed: int | World,
        names: Sequence[str],
        *,
        peers: Mapping[str, Sequence[str]] | None = None,
        faults: Faults | None = None,
        limits: Limits | None = None,
        memory: Sequence[str] = (),
        streams: Sequence[StreamRule] = (),
        delay: DelayRules | None = None,
        load: LoadRules | None = None,
        scale: ScaleSettings | None = None,
        sync_us: int = 2000,
        job_us: int = 50,
        watch: Callable[[NodeMachine], None] = lambda node: None,
        keyring: Keyring | None = None,
    ) -> None:
        self.keyring = keyring
        self.world = seed if isinstance(seed, World) else World(seed)
        self.network = Network(self.world, faults or Faults(), self._deliver, deliver_by=self._deliver_by)
        self.nodes: dict[str, NodeMachine] = {}
        self.clients: dict[str, Client] = {}
        self.strangers: dict[str, Callable[[str, list[Buffer]], None]] = {}
        """Others on the network, and what they do with a frame."""
        limits = limits or Limits(checkpoint_every_us=200_000)
        for name in names:
            known = [other for other in names if other != name] if peers is None else peers[name]
            settings = Settings(
                name=name,
                listen=f"ipc:///{name}",
                data="" if name in memory else name,
                store="memory" if name in memory else "disk",
                peers={other: f"ipc:///{other}" for other in known},
                limits=limits,
                streams=tuple(streams),
                delay=delay or DelayRules(),
                load=load or LoadRules(),
                scale=scale,
            )
            self.nodes[name] = NodeMachine(
                self.world,
                self.network,
                settings if keyring is None else keyring.secured(settings),
                sync_us=sync_us,
                job_us=job_us,
                watch=watch,
                keyring=keyring,
            )

    def start(self) -> None:
        """All nodes start."""
        for node in self.nodes.values():
            node.restart()

    def client(self, name: str, node: str) -> Client:
        """A new client of a node."""
        made = self.clients[name] = Client(self.world, self.network, name, node)
        return made

    def _deliver(self, source: str, target: str, frames: list[Buffer]) -> None:
        if target in self.nodes:
            self.nodes[target].deliver(source, frames)
        elif target in self.clients:
            self.clients[target].deliver(source, frames)
        elif target in self.strangers:
            self.strangers[target](source, frames)

    def _deliver_by(self, source: str, target: str, frames: list[Buffer], connection: int) -> None:
        """By another connection than the one that stands; clients have one only."""
        if target in self.nodes:
            self.nodes[target].deliver(source, frames, connection=connection)

    def run(self, done: Callable[[], bool] = lambda: False, *, for_us: int = 60_000_000) -> bool:
        """Let time pass until ``done``; whether it came true in time."""
        return self.world.run(until_us=self.world.now_us + for_us, events_max=EVENTS_MAX, done=done)

    def answer(self, client: Client, request: int) -> tuple[Reply, Buffer | None]:
        """The reply to a request.

        Raises:
            SimulationError: none came.
        """
        if not self.run(lambda: request in client.mind.replies):
            raise SimulationError(f"no reply to request {request} of {client.name}\n{self.last()}")
        return client.mind.replies.pop(request)

    def last(self) -> str:
        """The end of the trace."""
        return "\n".join(self.world.lines)

    # --- the stage of faults --------------------------------------------------------------------

    @property
    def machines(self) -> Mapping[str, Machine]:
        return dict(self.nodes)

    @property
    def links(self) -> Sequence[tuple[str, str]]:
        pairs = [
            (name, peer)
            for name, node in self.nodes.items()
            for peer in node.settings.peers
            if name < peer or name not in self.nodes[peer].settings.peers
        ]
        return [*pairs, *((name, node) for name, client in self.clients.items() for node in client.nodes)]

    def restart(self, name: str) -> None:
        self.nodes[name].restart()

    def heal(self) -> None:
        """All faults end; the dead are started again."""
        self.world.trace("world", "all faults end")
        self.network.heal_all()
        for name, node in self.nodes.items():
            node.disk.mend()
            node.slow_down(1)
            self.restart(name)

    def crash_all(self) -> bool:
        """All machines die at the same moment, and are started again."""
        self.world.trace("world", "all machines die")
        for node in self.nodes.values():
            node.crash()
        for node in self.nodes.values():
            node.restart()
        return True
