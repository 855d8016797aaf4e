"""The other nodes by which a client goes on when its own is unreachable: where they are, which of them to
call now. It calls nobody itself."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec

from medusa.decoders import json_decoder
from medusa.ports import Buffer
from medusa.runtime.keys.client_keys import ClientKeys
from medusa.wire import limits

__all__ = ["Contacts", "GivenNode", "Place", "read_place"]

Place = Mapping[str, Any]
"""What a node says of a name: ``node``, ``address``, ``server_key``, ``epoch``, ``kind``, ``name``, ..."""


class _Node(msgspec.Struct, frozen=True, kw_only=True):
    """What a client has to know of a node to call it."""

    node: str
    address: str
    server_key: str


class _StreamPlace(_Node, frozen=True, kw_only=True):
    """Where a stream is.

    Attributes:
        epoch: in which it is there.
        successors: that may have it next.
    """

    epoch: Annotated[int, msgspec.Meta(ge=0, le=limits.SEQ_MAX)]
    successors: tuple[_Node, ...] = ()


_STREAM_PLACE = json_decoder(_StreamPlace)


def read_place(document: Buffer) -> Place:
    """What a node says of where a stream is, as far as following it needs that.

    Raises:
        msgspec.MsgspecError, UnicodeDecodeError, RecursionError: it says something else.
    """
    place: Place = msgspec.to_builtins(_STREAM_PLACE.decode(document))
    return place


CALLED_MAX = 2
"""So many others are called at once. Too small: the one that is called may be lost too; too large: all
clients of a lost node come to all others."""

PATIENCE_US = 500_000
"""A node that hasn't answered a call for so long is no longer counted on; it is still called."""

CALL_AGAIN_US = 1_000_000
"""After a call that failed."""

LEARN_EVERY_US = 10_000_000
"""So often a client that follows streams asks which nodes there are."""


@dataclass(frozen=True, slots=True)
class GivenNode:
    """An address that the user gave to ``connect``.

    Attributes:
        keys: with which it is called.
    """

    address: str
    keys: ClientKeys | None = None


class Contacts:
    """What one client knows of the nodes of its participant.

    Args:
        given: addresses that the user gave beside the one that is used; which nodes are there, nobody knows.
    """

    def __init__(self, given: Iterable[GivenNode] = ()) -> None:
        self.given = tuple(given)
        self._found: dict[str, Place] = {}
        """Those that were found at a given address: they are there whether or not a node says so."""
        self._told: dict[str, Place] = {}
        self._calls: dict[str, int] = {}
        """Node or given address that is being called -> since when."""
        self._failed: dict[str, int] = {}
        """Node or given address that couldn't be called -> when."""
        self._learn_at_us = 0

    def __contains__(self, node: str) -> bool:
        return node in self._told or node in self._found

    def __bool__(self) -> bool:
        return bool(self._told or self._found)

    # --- which there are ----------------------------------------------------------------------------

    def to_learn(self, at_us: int) -> bool:
        """Whether it is time to ask which nodes there are."""
        return at_us >= self._learn_at_us

    def learn(self, at_us: int, places: Iterable[Place]) -> None:
        """These are all nodes of the participant."""
        self._learn_at_us = at_us + LEARN_EVERY_US
        self._told = {place["node"]: place for place in places}

    def found(self, given: GivenNode, place: Place) -> None:
        """This node is at an address that was given."""
        self._found[place["node"]] = place
        self.given = tuple(each for each in self.given if each is not given)

    # --- whom to call -------------------------------------------------------------------------------

    def to_call(self, at_us: int, up: int, known: Collection[str]) -> list[Place | GivenNode]:
        """Whom to call now, so that there are others than the lost one; each begins a call.

        Args:
            up: so many nodes other than the lost ones are there.
            known: nodes to which there is a connection, be it down.
        """
        up += sum(at_us - since_us < PATIENCE_US for since_us in self._calls.values())
        found: list[Place | GivenNode] = []
        places = {**self._told, **self._found}
        addresses = {place["address"] for place in places.values()}
        wanted: dict[str, Place | GivenNode] = {
            node: place for node, place in places.items() if place["address"] and node not in known
        }
        wanted |= {each.address: each for each in self.given if each.address not in addresses}
        for key, each in wanted.items():
            if up >= CALLED_MAX:
                break
            if key not in self._calls and at_us - self._failed.get(key, -CALL_AGAIN_US) >= CALL_AGAIN_US:
                self._calls[key] = at_us
                found.append(each)
                up += 1
        return found

    def calls(self, at_us: int, place: Place) -> bool:
        """Begin a call of this node, unless it is being called, or was in vain just now."""
        node = place["node"]
        if node in self._calls or at_us - self._failed.get(node, -CALL_AGAIN_US) < CALL_AGAIN_US:
            return False
        self._calls[node] = at_us
        return True

    def called(self, at_us: int, target: Place | GivenNode, *, there: bool) -> None:
        """A call is over."""
        key = target.address if isinstance(target, GivenNode) else target["node"]
        self._calls.pop(key, None)
        self._failed.pop(key, None)
        if not there:
            self._failed[key] = at_us
