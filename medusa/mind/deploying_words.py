"""What a coordinator says and writes of a deployment. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from medusa.mind.spec import Fragment
from medusa.wire.messages import Reply

__all__ = ["from_node", "put_abroad", "there_already"]


def put_abroad(
    fragments: Iterable[Fragment], whose: Callable[[str], str]
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
