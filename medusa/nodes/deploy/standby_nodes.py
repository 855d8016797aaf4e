"""The nodes that may stand by for others, as the one knows them that is asked to deploy. No IO."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from medusa.nodes.catalog.directory import Directory
from medusa.nodes.catalog.entry_bodies import NodeBody, body_from
from medusa.nodes.config.endpoint import is_loopback
from medusa.nodes.config.settings import Settings
from medusa.nodes.config.settings_store import forgets
from medusa.nodes.load.loads import NodeLoads
from medusa.nodes.placement.standby_plan import StandbyNode
from medusa.wire import limits
from medusa.wire.link.session import PeerSession, PeerState
from medusa.wire.messages.load import WHOLE

__all__ = ["host_of", "standby_nodes"]

HERE = "localhost"


def standby_nodes(
    settings: Settings,
    directory: Directory,
    loads: NodeLoads,
    sessions: Mapping[str, PeerSession],
    abroad: Callable[[str], str],
) -> dict[str, StandbyNode]:
    """By name: the peers, this node, and then others of the participant that are no peers.

    Args:
        sessions: with the peers.
        abroad: the participant of another one's node; empty: it is of our own.
    """
    me = settings.name
    own = host_of(settings.listen)
    found = {peer: _peer(peer, settings, directory, loads, sessions[peer], abroad) for peer in settings.peers}
    found[me] = StandbyNode(
        name=me,
        host=own or HERE,
        forgets=settings.forgets,
        elsewhere=settings.spark is not None,
        load=loads.load or 0.0,
    )
    for entry in directory.entries("node"):
        if entry.name not in found:
            found[entry.name] = StandbyNode(name=entry.name, peer=False, up=False)
    return found


def _peer(
    peer: str,
    settings: Settings,
    directory: Directory,
    loads: NodeLoads,
    session: PeerSession,
    abroad: Callable[[str], str],
) -> StandbyNode:
    entry = directory.find("node", peer)
    body = body_from(entry.body, NodeBody) if entry is not None else None
    said = loads.peers.get(peer)
    return StandbyNode(
        name=peer,
        host=host_of(settings.peers[peer]),
        abroad=abroad(peer),
        up=session.state is PeerState.UP,
        forgets=session.forgets or (body is not None and forgets(body.store)),
        elsewhere=body is not None and bool(body.engine),
        agrees=not session.version or session.version >= limits.AGREEING_VERSION,
        load=0.0 if said is None else said[1].load / WHOLE,
    )


def host_of(address: str) -> str:
    """The machine of an address, as far as that shows; empty: it doesn't."""
    if address.startswith("ipc://"):
        return HERE
    host = address.removeprefix("tcp://").rpartition(":")[0].strip("[]")
    if host in ("*", "0.0.0.0", "::"):
        return ""
    return HERE if is_loopback(host) else host
