"""All messages of the wire, a row each: who may say it, and which part of the node takes it.

The node reads nothing else to authorise and to dispatch. A message that isn't in the table is nobody's to
say. What the table allows may still be refused by its owner: a plan names its readers, an offer its parts, a
graph its query. Whether a message brings a payload stands with its struct (``MessageBase.PAYLOAD``), where
the codec finds it too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from medusa.errors import RemoteProtocolError
from medusa.nodes.security.registry import Caller, Refusal, no_deploy, no_role
from medusa.ports import Buffer
from medusa.wire.messages import Message
from medusa.wire.messages.base import Payload
from medusa.wire.messages.commands import Declare, Deploy, Forget, Install, Remove, Reply, StatusRequest
from medusa.wire.messages.configuration import Accept, Configure, Prepare, Vote
from medusa.wire.messages.dht import DhtFind, DhtFound, DhtLeave, DhtStore, DhtStored
from medusa.wire.messages.directory import Define, Digest, Entries, Lookup
from medusa.wire.messages.links import (
    Ack,
    Attach,
    Attached,
    Boundary,
    Data,
    Detach,
    Heartbeat,
    Hello,
    OpenPublisher,
    Progress,
    Refuse,
)
from medusa.wire.messages.load import Load
from medusa.wire.messages.market import Booked, Traded
from medusa.wire.messages.move import (
    Fed,
    FedTogether,
    GiveUp,
    Got,
    Grant,
    Handover,
    Move,
    Piece,
    Ready,
    Receive,
    Seed,
    Settle,
    Settled,
    Standing,
    Whole,
)
from medusa.wire.messages.remote import (
    DefineRemote,
    DropRemote,
    Instantiate,
    KeepRemote,
    RevokeRemote,
    StoppedRemote,
)
from medusa.wire.messages.rerouting import Expect, Follow, Moved, Placed, Read, Release, Unexpect
from medusa.wire.messages.split import Merge, Split
from medusa.wire.messages.standby import DeployGuarded
from medusa.wire.messages.tentative import StreamState, TentativeBoundary, TentativeRows, TentativeTaken

__all__ = ["MESSAGES", "Heard", "MessageOwner", "MessageRow", "Right", "Rights", "check_payload", "refusal"]


@dataclass(frozen=True, slots=True)
class Heard:
    """A message that its sender may say, as its owner gets it.

    Attributes:
        client: ``peer`` is a client, not a node.
        caller: who has the key of ``peer``; None: this node has no keys, or has sent it to itself.
        lane: of the connection that brought it; 0: the one for control.
    """

    now_us: int
    peer: str
    message: Message
    payload: Buffer | None
    client: bool = False
    caller: Caller | None = None
    lane: int = 0


class MessageOwner(Enum):
    """The part of a node that takes a message: ``NodeMind`` has a method of each."""

    SESSION = "whether a peer is there"
    PEERS = "who calls, and where it is called back"
    KEYS = "statements about keys"
    STREAMS = "rows of streams, their readers and publishers"
    NAMES = "where things are, by name"
    CATALOG = "the catalog of our participant"
    DHT = "the catalog between participants"
    QUERIES = "queries and definitions, as clients ask for them"
    FRAGMENTS = "what other nodes install and remove here"
    ORDERS = "orders that a fragment moves, or is split and merged"
    COMING = "from the owner of a fragment, to the node that gets it or stands by for it"
    GOING = "from the node that gets a fragment or stands by for it, to its owner"
    REROUTING = "neighbours of fragments that move"
    AGREEMENT = "who owns what in queries with replicas"
    FOLLOWING = "what this node is to stand by for"
    REMOTE = "parts that one node keeps for another"
    LOADS = "how much there is to do"
    MARKET = "load that participants run for each other under contracts"
    STATUS = "how the node is"
    ANSWERS = "answers: the part that asked, found by the number"


@dataclass(frozen=True, slots=True)
class Right:
    """What a kind of caller may do with a message.

    Attributes:
        words: for the documentation.
        against: gives the refusal that answers a message of this caller, or None where it may say it; the
            link stays. None: every message is allowed.
        ends: the message breaks the protocol (``E_ROLE``), and the link ends.
    """

    words: str
    against: Callable[[Caller, Message, str], Refusal | None] | None = None
    ends: bool = False


@dataclass(frozen=True, slots=True)
class Rights:
    """Who may say a message: a node of our participant; one of another participant; a client.

    Without keys every node is of our participant, and a client has all roles.
    """

    own: Right
    abroad: Right
    client: Right


@dataclass(frozen=True, slots=True)
class MessageRow:
    """What a node knows of one kind of message."""

    rights: Rights
    owner: MessageOwner


# --- cells ------------------------------------------------------------------------------------------

YES = Right("yes")
NO = Right("no", ends=True)


def _role(role: str, name: Callable[[Message], str], of: str) -> Right:
    """A client with this role for what the message names."""

    def against(caller: Caller, message: Message, own: str) -> Refusal | None:
        named = name(message)
        return None if caller.may(role, named) else no_role(caller, role, named)

    return Right(f"`{role}` of the {of}", against)


def _some(*roles: str) -> Right:
    """A client with one of these roles for anything; the rest shows when the message is read."""

    def against(caller: Caller, message: Message, own: str) -> Refusal | None:
        has = any(getattr(caller.rules, role) for role in roles)
        return None if has else no_role(caller, roles[0], "")

    return Right(" or ".join(f"`{role}`" for role in roles), against)


def _not_abroad(code: str, text: str, hint: str = "") -> Right:
    """``text``: what that node may not; ``{own}`` in it stands for the participant of this node."""

    def against(caller: Caller, message: Message, own: str) -> Refusal | None:
        who = f"node {caller.name!r} of participant {caller.participant!r}"
        return Refusal(code=code, text=f"{who} {text.format(own=own)}", hint=hint.format(name=caller.name))

    return Right(f"no: `{code}`", against)


def _plain_abroad(caller: Caller, message: Message, own: str) -> Refusal | None:
    assert isinstance(message, Attach)
    if not message.plain:
        return None
    who = f"node {caller.name!r} of participant {caller.participant!r}"
    hint = "subscribe with the key of a client"
    return Refusal(code="E_READER", text=f"{who} reads only what the plan of a query gives it", hint=hint)


def _forget(caller: Caller, message: Message, own: str) -> Refusal | None:
    assert isinstance(message, Forget)
    if message.owner:  # Of which query it is shows there.
        return None if caller.rules is not None and caller.rules.deploy else no_deploy(caller, "")
    role = "publish" if message.publisher else "subscribe"
    return None if caller.may(role, message.stream) else no_role(caller, role, message.stream)


def _stream(message: Message) -> str:
    return str(getattr(message, "stream", ""))


def _query(message: Message) -> str:
    return str(getattr(message, "query", ""))


def _query_of_fragment(message: Message) -> str:
    return str(getattr(message, "fragment", "")).partition("/")[0]


_PUBLISH = _role("publish", _stream, "stream")
_READ = _role("subscribe", _stream, "stream")
_NO_CONTRACT = _not_abroad(
    "E_NO_CONTRACT",
    "has no contract under which it may run or stop anything here",
    "have that part kept first, by {name} (medusa remote define there: a definition is of one node, so "
    "deploy there too), or put it at nodes of its own participant",
)
_NO_STATUS = _not_abroad("E_ROLE", "may not ask for the status")
_NO_CATALOG = _not_abroad("E_ROLE", "takes no part in the catalog of participant {own!r}")

_CONTRACT = Right("with a contract: else `E_NO_CONTRACT`")
"""The part that trades asks: which contracts there are no table knows."""

ANYBODY = Rights(YES, YES, YES)
NODES = Rights(YES, YES, NO)
OWN_NODES = Rights(YES, NO, NO)
STREAM_DATA = Rights(YES, YES, _PUBLISH)
READING = Rights(YES, YES, _READ)
LANE_DATA = Rights(YES, NO, _PUBLISH)
LANE_READING = Rights(YES, NO, _READ)
DEPLOYING = Rights(NO, NO, _some("deploy"))
TRADING = Rights(NO, _CONTRACT, NO)
ORDERING = Rights(YES, NO, _role("deploy", _query_of_fragment, "query"))

MESSAGES: dict[type, MessageRow] = {
    # --- who is there
    Hello: MessageRow(ANYBODY, MessageOwner.PEERS),
    Heartbeat: MessageRow(ANYBODY, MessageOwner.SESSION),
    Refuse: MessageRow(ANYBODY, MessageOwner.STREAMS),
    # --- streams
    Attach: MessageRow(
        Rights(YES, Right("yes, but not `plain`: `E_READER`", _plain_abroad), _READ), MessageOwner.STREAMS
    ),
    Ack: MessageRow(READING, MessageOwner.STREAMS),
    Detach: MessageRow(READING, MessageOwner.STREAMS),
    OpenPublisher: MessageRow(Rights(NO, NO, _PUBLISH), MessageOwner.STREAMS),
    Attached: MessageRow(STREAM_DATA, MessageOwner.STREAMS),
    Data: MessageRow(STREAM_DATA, MessageOwner.STREAMS),
    Boundary: MessageRow(STREAM_DATA, MessageOwner.STREAMS),
    Progress: MessageRow(STREAM_DATA, MessageOwner.STREAMS),
    StreamState: MessageRow(LANE_DATA, MessageOwner.STREAMS),
    TentativeRows: MessageRow(LANE_DATA, MessageOwner.STREAMS),
    TentativeBoundary: MessageRow(LANE_DATA, MessageOwner.STREAMS),
    TentativeTaken: MessageRow(LANE_READING, MessageOwner.STREAMS),
    # --- commands
    Deploy: MessageRow(DEPLOYING, MessageOwner.QUERIES),
    DeployGuarded: MessageRow(DEPLOYING, MessageOwner.QUERIES),
    Define: MessageRow(DEPLOYING, MessageOwner.QUERIES),
    Install: MessageRow(Rights(YES, _NO_CONTRACT, NO), MessageOwner.FRAGMENTS),
    Remove: MessageRow(Rights(YES, YES, _role("deploy", _query, "query")), MessageOwner.QUERIES),
    Forget: MessageRow(
        Rights(
            NO, NO, Right("`subscribe` or `publish` of the stream; `deploy` where it names an owner", _forget)
        ),
        MessageOwner.STREAMS,
    ),
    StatusRequest: MessageRow(
        Rights(YES, _NO_STATUS, _some("status", "publish", "subscribe")), MessageOwner.STATUS
    ),
    Lookup: MessageRow(Rights(NO, NO, _some("status", "publish", "subscribe", "deploy")), MessageOwner.NAMES),
    Declare: MessageRow(ANYBODY, MessageOwner.KEYS),
    Reply: MessageRow(NODES, MessageOwner.ANSWERS),
    # --- the catalogs
    Entries: MessageRow(Rights(YES, _NO_CATALOG, NO), MessageOwner.CATALOG),
    Digest: MessageRow(Rights(YES, _NO_CATALOG, NO), MessageOwner.CATALOG),
    DhtFind: MessageRow(NODES, MessageOwner.DHT),
    DhtFound: MessageRow(NODES, MessageOwner.DHT),
    DhtStore: MessageRow(NODES, MessageOwner.DHT),
    DhtStored: MessageRow(NODES, MessageOwner.DHT),
    DhtLeave: MessageRow(NODES, MessageOwner.DHT),
    Load: MessageRow(OWN_NODES, MessageOwner.LOADS),
    # --- readers that go elsewhere
    Expect: MessageRow(NODES, MessageOwner.REROUTING),
    Unexpect: MessageRow(NODES, MessageOwner.REROUTING),
    Release: MessageRow(NODES, MessageOwner.REROUTING),
    Follow: MessageRow(NODES, MessageOwner.REROUTING),
    Moved: MessageRow(NODES, MessageOwner.REROUTING),
    Placed: MessageRow(Rights(YES, _NO_CONTRACT, NO), MessageOwner.REROUTING),
    Read: MessageRow(NODES, MessageOwner.REROUTING),
    # --- fragments that move, or are split
    Move: MessageRow(ORDERING, MessageOwner.ORDERS),
    Grant: MessageRow(ORDERING, MessageOwner.ORDERS),
    Split: MessageRow(ORDERING, MessageOwner.ORDERS),
    Merge: MessageRow(ORDERING, MessageOwner.ORDERS),
    Receive: MessageRow(OWN_NODES, MessageOwner.COMING),
    Ready: MessageRow(OWN_NODES, MessageOwner.GOING),
    Piece: MessageRow(OWN_NODES, MessageOwner.COMING),
    Whole: MessageRow(OWN_NODES, MessageOwner.COMING),
    Fed: MessageRow(OWN_NODES, MessageOwner.COMING),
    FedTogether: MessageRow(OWN_NODES, MessageOwner.COMING),
    Standing: MessageRow(OWN_NODES, MessageOwner.COMING),
    Handover: MessageRow(OWN_NODES, MessageOwner.COMING),
    Got: MessageRow(OWN_NODES, MessageOwner.GOING),
    GiveUp: MessageRow(OWN_NODES, MessageOwner.GOING),
    Settle: MessageRow(OWN_NODES, MessageOwner.COMING),
    Settled: MessageRow(OWN_NODES, MessageOwner.GOING),
    # --- who owns what, where fragments have replicas
    Configure: MessageRow(OWN_NODES, MessageOwner.AGREEMENT),
    Prepare: MessageRow(OWN_NODES, MessageOwner.AGREEMENT),
    Accept: MessageRow(OWN_NODES, MessageOwner.AGREEMENT),
    Vote: MessageRow(OWN_NODES, MessageOwner.AGREEMENT),
    Seed: MessageRow(OWN_NODES, MessageOwner.FOLLOWING),
    # --- parts that another node keeps
    DefineRemote: MessageRow(DEPLOYING, MessageOwner.REMOTE),
    RevokeRemote: MessageRow(DEPLOYING, MessageOwner.REMOTE),
    KeepRemote: MessageRow(NODES, MessageOwner.REMOTE),
    DropRemote: MessageRow(NODES, MessageOwner.REMOTE),
    Instantiate: MessageRow(NODES, MessageOwner.REMOTE),
    StoppedRemote: MessageRow(NODES, MessageOwner.REMOTE),
    # --- load that participants run for each other
    Traded: MessageRow(TRADING, MessageOwner.MARKET),
    Booked: MessageRow(TRADING, MessageOwner.MARKET),
}
"""Every message of the wire."""

_NOBODY = Rights(NO, NO, NO)


def refusal(peer: str, caller: Caller | None, message: Message, own: str, *, client: bool) -> Refusal | None:
    """What stands against a message; None: nothing.

    Args:
        caller: who has the key of ``peer``; None: this node has no keys.
        own: the participant of this node.
        client: ``peer`` came as a client.

    Raises:
        RemoteProtocolError: it is not for this kind of caller to say (``E_ROLE``).
    """
    row = MESSAGES.get(type(message))
    rights = _NOBODY if row is None else row.rights
    near = caller is None or caller.participant == own
    right = rights.client if client else rights.own if near else rights.abroad
    if right.ends:
        what = type(message).__name__
        raise RemoteProtocolError(f"{what} is not for it to say", peer=peer, code="E_ROLE")
    return None if caller is None or right.against is None else right.against(caller, message, own)


def check_payload(peer: str, message: Message, payload: Buffer | None) -> None:
    """The codec checks that too; a node asks for itself, whatever drives it.

    Raises:
        RemoteProtocolError: it brings nothing, and can't be understood without.
    """
    if payload is None and message.PAYLOAD is Payload.REQUIRED:
        raise RemoteProtocolError("the payload is missing", peer=peer, code="E_FRAME")
