"""What is asked of a node, and its answer: run and remove queries, forget, how are you, a statement."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import Meta

from medusa.wire import limits
from medusa.wire.messages.base import (
    Count,
    MessageBase,
    Name,
    Names,
    Payload,
    PublisherName,
    SubscriptionName,
    Text,
)

__all__ = ["Declare", "Deploy", "Forget", "Install", "Remove", "Reply", "StatusRequest"]


class Deploy(MessageBase, frozen=True, tag="deploy"):
    """From a client: run this query. Payload: the graph, as msgpack.

    Attributes:
        at: (node, names of the boxes and sources that run there) for each node.
        reads: (source, node, stream, epoch) for each source that reads a stream of another query.
    """

    PAYLOAD: ClassVar[Payload] = Payload.REQUIRED

    request: Count
    at: Annotated[tuple[tuple[Name, Names], ...], Meta(max_length=limits.PLACES_MAX)]
    reads: Annotated[tuple[tuple[Name, Name, Name, Count], ...], Meta(max_length=limits.PLACES_MAX)] = ()


class Install(MessageBase, frozen=True, tag="install"):
    """From the node that took a query: run this fragment of it. Payload: its spec, as msgpack.

    Attributes:
        life: of a query with a configuration, as that says it: tells it from one of its name that was
            removed. 0: it has none, or the sender's release doesn't say it.
    """

    PAYLOAD: ClassVar[Payload] = Payload.REQUIRED

    request: Count
    query: Name
    fragment: Name
    life: Count = 0


class Remove(MessageBase, frozen=True, tag="remove"):
    """Stop a query and forget its state.

    Attributes:
        since: from a node that undoes a deployment: the first request of it. Only what its requests, from
            this one to below ``request``, have installed goes; what was there before stays. 0: all of it.
        life: of a query with a configuration, as that says it: who has a configuration of this life obeys
            whoever says so, since a query is removed once and for all. 0: its coordinator says so.
        asked: from a node that doesn't coordinate the query, to the one that does: a client wants it removed.
    """

    request: Count
    query: Name
    since: Count = 0
    life: Count = 0
    asked: bool = False


class Forget(MessageBase, frozen=True, tag="forget"):
    """From a client: end its named subscription, keep nothing for it; or its named publisher.

    Attributes:
        publisher: a named publisher is meant, of the stream as it is published.
        owner: whose it is, as status shows it; empty: the client's own. Another's is ended by who may
            remove the query.
    """

    request: Count
    stream: Name
    name: Annotated[PublisherName, Meta(min_length=1)]
    owner: SubscriptionName = ""
    publisher: bool = False


class StatusRequest(MessageBase, frozen=True, tag="status"):
    """How are you?"""

    request: Count


class Declare(MessageBase, frozen=True, tag="declare"):
    """A participant has signed this: a certificate of a node's key, or that a key counts no more.

    Attributes:
        request: 0 where no answer is wanted.
        statement: ``medusa.wire.statement.Signed``; who brings it need not have signed it.
    """

    request: Count
    statement: Annotated[bytes, Meta(max_length=2 * limits.STATEMENT_BYTES_MAX)]


class Reply(MessageBase, frozen=True, tag="reply"):
    """The answer to a command. Payload, where there is one: a JSON document.

    Attributes:
        code: empty where it was done; else the rule that stood against it, and nothing changed.
    """

    PAYLOAD: ClassVar[Payload] = Payload.OPTIONAL

    request: Count
    code: Annotated[str, Meta(max_length=limits.NAME_CHARS_MAX)] = ""
    text: Text = ""
    hint: Text = ""
