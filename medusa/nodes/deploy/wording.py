"""What a coordinator says and writes of a deployment. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from medusa.nodes.catalog.catalog import DEPLOYING, REMOVING
from medusa.nodes.requests import Request
from medusa.nodes.spec.fragment_spec import FragmentSpec
from medusa.wire.messages.commands import Install, Remove, Reply
from medusa.wire.messages.remote import Instantiate

__all__ = [
    "BEGINS",
    "CONTENDED",
    "CONTENDED_AGAIN_US",
    "CONTENDED_US",
    "DeploymentAttempt",
    "DeploymentQuestion",
    "from_node",
    "put_abroad",
    "silent",
    "taken",
    "there_already",
    "undeployed",
    "undone",
]

CONTENDED = "E_CONTENDED"
"""A node has the query from another coordinator, which may be about to undo it: the code of its refusal.

Two coordinators that deploy queries of one name at once may each get some nodes. Only the one whose name
comes first hears this and asks again; the other hears ``E_DEPLOYED`` and undoes what it began.
"""

CONTENDED_US = 2_000_000
"""So long it asks again, before it believes that the other's deployment stands."""

CONTENDED_AGAIN_US = 200_000

BEGINS = Install | Instantiate
"""How a node is told to run a fragment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentQuestion:
    """A message to a node that needs an answer.

    Attributes:
        fragment: to install at this node.
    """

    query: str
    message: Install | Instantiate | Remove
    payload: bytes | None
    after: int
    fragment: FragmentSpec | None = None


@dataclass(slots=True, kw_only=True)
class DeploymentAttempt:
    """A deployment or removal whose outcome a client waits for.

    Attributes:
        installs: that haven't been answered with yes.
        has: nodes that have a fragment of it, by their own word.
    """

    client: str
    request: int
    deadline_us: int
    contended_until_us: int = 0
    installs: dict[int, Request[DeploymentQuestion]] = field(default_factory=dict)
    has: set[str] = field(default_factory=set)

    def refused_by(self, node: str) -> bool:
        """Whether a node that has just refused a fragment can't have another one."""
        return node not in self.has and all(each.to != node for each in self.installs.values())


def put_abroad(
    fragments: Iterable[FragmentSpec], whose: Callable[[str], str]
) -> tuple[tuple[str, str, str, tuple[str, ...]], ...]:
    """(fragment, node, participant, boxes) of those that stand at nodes of other participants.

    Args:
        whose: the participant of another one's node; empty: it is of our own.
    """
    found = []
    for each in fragments:
        feeds = [feed.source for feed in each.feeds]
        if participant := whose(each.node):
            boxes = tuple(box.id for box in each.graph.boxes if box.id not in feeds)
            found.append((each.name, each.node, participant, boxes))
    return tuple(found)


def there_already(
    request: int, query: str, owner: str, participant: str = "", code: str = "E_DEPLOYED"
) -> Reply:
    """What who deploys a query hears where another node has one of that name.

    Args:
        participant: of that node, if it isn't ours.
    """
    text = f"query {query!r} is there already, from node {owner!r}"
    hint = "undeploy it first, or give the query another name"
    if participant:
        text += f" of participant {participant!r}, for which a part of it runs here"
        end = f"medusa remote revoke {participant}/{query} --stop"
        hint = f"give the query another name; or end that part here: {end}"
    return Reply(request=request, code=code, text=text, hint=hint)


def from_node(reply: Reply, node: str) -> Reply:
    """What a node refused, for the client."""
    return Reply(
        request=reply.request, code=reply.code, text=f"node {node!r}: {reply.text}"[:2000], hint=reply.hint
    )


def undone(request: int, code: str, query: str) -> Reply:
    """What a client hears that asked again after its coordinator had restarted amid the deployment.

    Args:
        code: empty: the query runs after all.
    """
    if not code:
        return Reply(request=request)
    text = f"the node that deployed query {query!r} restarted before all of it was there, and removes it"
    return Reply(request=request, code=code, text=text, hint="try again in a moment")


def undeployed(request: int, query: str) -> Reply:
    """What who waits for a deployment hears when somebody removes the query before it is known to run."""
    text = f"query {query!r} was undeployed before its deployment was over"
    return Reply(request=request, code="E_REMOVED", text=text, hint="deploy it again if it is still wanted")


def taken(request: int, query: str, what: str) -> Reply:
    """Why a query that is there can't be deployed."""
    hint = "undeploy it first, or give the query another name"
    if what == "being removed":
        hint = "try again in a moment; a node of it that is away holds that up: take another name then"
    return Reply(request=request, code="E_DEPLOYED", text=f"query {query!r} is {what}", hint=hint)


def silent(request: int, query: str, state: str, nodes: Iterable[str], timeout_us: int, waits: bool) -> Reply:
    """What who waits for a deployment or a removal hears when its time is over.

    Args:
        state: of the deployment.
        nodes: that didn't answer. Of a deployment that was found half done there may be none: other
            participants have parts of it.
        waits: it was found half done: nothing of it is undone.
    """
    names = list(dict.fromkeys(nodes))
    back = "it is back" if len(names) == 1 else "they are back"
    text = f"no answer from {', '.join(map(repr, names))} in {timeout_us / 1e6:g} s"
    hint = "check that the node runs and that both list each other in [peers]"
    if waits:
        known = f"is known once {back}" if names else "isn't known"
        text = f"{text}: " if names else ""
        text += (
            f"the node that deployed query {query!r} restarted amid it; whether all of it is there {known}"
        )
        hint = "what there is runs on; undeploy it if it isn't wanted"
    elif state != DEPLOYING:
        text = f"{text}: query {query!r} is {REMOVING}, and gone by itself once {back}"
        hint = "medusa queries lists it until then"
    return Reply(request=request, code="E_TIMEOUT", text=text[:2000], hint=hint)
