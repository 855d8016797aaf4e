"""Hosts of a demonstration, of which one can be cut off: network namespaces, or relays on this machine."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Protocol

from medusa.apps.workloads.network.net import Net, why_not
from medusa.apps.workloads.network.relays import Relays
from medusa.errors import LinkError

__all__ = ["KINDS", "Hosts", "made_hosts"]

KINDS = ("namespaces", "relays")
PORT = 5555


class Hosts(Protocol):
    """Nodes and clients are on hosts, each on its own, by name.

    Attributes:
        kind: one of ``KINDS``.
        told: in words, what is cut, and where it isn't a network, why.
    """

    kind: str
    told: str

    def listens(self, node: str) -> str:
        """Where a node listens."""

    def call(self, node: str) -> str:
        """Where others call it."""

    def words(self, node: str) -> Sequence[str]:
        """What comes before the command that starts a node."""

    def on(self, host: str) -> AbstractContextManager[None]:
        """Inside, what this thread connects to is called from that host."""

    def run(self, pids: Callable[[], Mapping[str, int]]) -> None:
        """These processes are the nodes; said before any is started."""

    def isolate(self, *hosts: str) -> None:
        """Cut these off from all others, in both directions, not from each other; true once it returns."""

    def heal(self) -> None:
        """Nothing is cut any more."""


@contextlib.contextmanager
def made_hosts(nodes: Sequence[str], clients: Sequence[str], wish: str | None = None) -> Iterator[Hosts]:
    """Hosts, until the end of the context.

    Args:
        wish: one of ``KINDS``; None: namespaces where they are allowed, else relays.

    Raises:
        LinkError: namespaces are wished for, and not allowed here.
    """
    with contextlib.ExitStack() as stack:
        reason = why_not()
        if wish != "relays" and not reason:
            try:
                net = stack.enter_context(Net([*nodes, *clients]))
            except (LinkError, OSError) as error:
                reason = f"can't be made: {error}"
            else:
                yield _Namespaces(net)
                return
        if wish == "namespaces":
            raise LinkError(
                f"no network namespaces here: {reason}",
                hint="--network relays cuts inside the link layer instead",
                code="link.network",
            )
        folder = Path(tempfile.mkdtemp(prefix="md-"))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        made = _Relayed(folder, nodes, reason)
        stack.callback(made.close)
        yield made


class _Namespaces:
    """Each host is a network namespace; a router between them drops packets."""

    kind = "namespaces"
    told = "each node and client has a network namespace of its own; a router between them drops all packets"

    def __init__(self, net: Net) -> None:
        self._net = net

    def listens(self, node: str) -> str:
        return f"tcp://{self._net.addresses[node]}:{PORT}"

    def call(self, node: str) -> str:
        return self.listens(node)

    def words(self, node: str) -> Sequence[str]:
        return "ip", "netns", "exec", self._net.space(node)

    def on(self, host: str) -> AbstractContextManager[None]:
        return self._net.on(host)

    def run(self, pids: Callable[[], Mapping[str, int]]) -> None:
        """A namespace has what was started in it."""

    def isolate(self, *hosts: str) -> None:
        self._net.cut(*(way for way in self._net.all_ways() if len({*way}.intersection(hosts)) == 1))

    def heal(self) -> None:
        self._net.heal()


class _Relayed:
    """All are processes of this machine; relays carry the bytes of their connections, or keep them."""

    kind = "relays"

    def __init__(self, folder: Path, nodes: Sequence[str], reason: str) -> None:
        why = f" (network namespaces: {reason})" if reason else ""
        self.told = f"no network is cut: relays below the nodes' connections hold back all bytes{why}"
        self._folder = folder
        self._pids: Callable[[], Mapping[str, int]] = dict
        self._relays = Relays(folder, nodes, lambda: self._pids())

    def listens(self, node: str) -> str:
        return f"ipc://{self._folder / node}"

    def call(self, node: str) -> str:
        return f"{self.listens(node)}.call"

    def words(self, node: str) -> Sequence[str]:
        return ()

    def on(self, host: str) -> AbstractContextManager[None]:
        return nullcontext()

    def run(self, pids: Callable[[], Mapping[str, int]]) -> None:
        self._pids = pids

    def isolate(self, *hosts: str) -> None:
        self._relays.isolate(*hosts)

    def heal(self) -> None:
        self._relays.isolate()

    def close(self) -> None:
        self._relays.close()
