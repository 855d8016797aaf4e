"""Who may say which message: one table, asked before anything else is done with a message.

A message that isn't in the table is nobody's to say. What the table allows may still be refused by the part
of the mind that it is for: a plan names its readers, an offer its parts, a graph its query.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from medusa.errors import RemoteProtocolError
from medusa.nodes.security.registry import Caller, Refusal, no_deploy, no_role
from medusa.wire.messages.dht import DhtFind, DhtFound, DhtLeave, DhtStore, DhtStored
from medusa.wire.messages.links_and_commands import (
    Ack,
    Attach,
    Attached,
    Boundary,
    Data,
    Declare,
    Define,
    Deploy,
    Detach,
    Digest,
    Entries,
    Forget,
    Heartbeat,
    Hello,
    Install,
    Load,
    Lookup,
    Message,
    Offer,
    Progress,
    Refuse,
    Remove,
    Reply,
    StatusRequest,
)
from medusa.wire.messages.move import (
    Fed,
    GiveUp,
    Got,
    Grant,
    Handover,
    Move,
    Piece,
    Ready,
    Receive,
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

__all__ = ["RIGHTS", "Right", "Row", "refusal"]


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
class Row:
    """Of one message: a node of our participant; one of another participant; a client.

    Without keys every node is of our participant, and a client has all roles.
    """

    own: Right
    abroad: Right
    client: Right


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

ANYBODY = Row(YES, YES, YES)
NODES = Row(YES, YES, NO)
OWN_NODES = Row(YES, NO, NO)
STREAM_DATA = Row(YES, YES, _PUBLISH)
READING = Row(YES, YES, _READ)
DEPLOYING = Row(NO, NO, _some("deploy"))
ORDERING = Row(YES, NO, _role("deploy", _query_of_fragment, "query"))

RIGHTS: dict[type, Row] = {
    # --- who is there
    Hello: ANYBODY,
    Heartbeat: ANYBODY,
    Refuse: ANYBODY,
    # --- streams
    Attach: Row(YES, Right("yes, but not `plain`: `E_READER`", _plain_abroad), _READ),
    Ack: READING,
    Detach: READING,
    Offer: Row(NO, NO, _PUBLISH),
    Attached: STREAM_DATA,
    Data: STREAM_DATA,
    Boundary: STREAM_DATA,
    Progress: STREAM_DATA,
    # --- commands
    Deploy: DEPLOYING,
    Define: DEPLOYING,
    Install: Row(YES, _NO_CONTRACT, NO),
    Remove: Row(YES, YES, _role("deploy", _query, "query")),
    Forget: Row(
        NO, NO, Right("`subscribe` or `publish` of the stream; `deploy` where it names an owner", _forget)
    ),
    StatusRequest: Row(YES, _NO_STATUS, _some("status", "publish", "subscribe")),
    Lookup: Row(NO, NO, _some("status", "publish", "subscribe", "deploy")),
    Declare: ANYBODY,
    Reply: NODES,
    # --- the catalogs
    Entries: Row(YES, _NO_CATALOG, NO),
    Digest: Row(YES, _NO_CATALOG, NO),
    DhtFind: NODES,
    DhtFound: NODES,
    DhtStore: NODES,
    DhtStored: NODES,
    DhtLeave: NODES,
    Load: OWN_NODES,
    # --- readers that go elsewhere
    Expect: NODES,
    Unexpect: NODES,
    Release: NODES,
    Follow: NODES,
    Moved: NODES,
    Placed: Row(YES, _NO_CONTRACT, NO),
    Read: NODES,
    # --- fragments that move, or are split
    Move: ORDERING,
    Grant: ORDERING,
    Split: ORDERING,
    Merge: ORDERING,
    Receive: OWN_NODES,
    Ready: OWN_NODES,
    Piece: OWN_NODES,
    Whole: OWN_NODES,
    Fed: OWN_NODES,
    Standing: OWN_NODES,
    Handover: OWN_NODES,
    Got: OWN_NODES,
    GiveUp: OWN_NODES,
    Settle: OWN_NODES,
    Settled: OWN_NODES,
    # --- parts that another node keeps
    DefineRemote: DEPLOYING,
    RevokeRemote: DEPLOYING,
    KeepRemote: NODES,
    DropRemote: NODES,
    Instantiate: NODES,
    StoppedRemote: NODES,
}
"""Every message of the wire."""

_NOBODY = Row(NO, NO, NO)


def refusal(peer: str, caller: Caller | None, message: Message, own: str, *, client: bool) -> Refusal | None:
    """What stands against a message; None: nothing.

    Args:
        caller: who has the key of ``peer``; None: this node has no keys.
        own: the participant of this node.
        client: ``peer`` came as a client.

    Raises:
        RemoteProtocolError: it is not for this kind of caller to say (``E_ROLE``).
    """
    row = RIGHTS.get(type(message), _NOBODY)
    near = caller is None or caller.participant == own
    right = row.client if client else row.own if near else row.abroad
    if right.ends:
        what = type(message).__name__
        raise RemoteProtocolError(f"{what} is not for it to say", peer=peer, code="E_ROLE")
    return None if caller is None or right.against is None else right.against(caller, message, own)
