"""What docs/protocol.md takes from the code: the automata, the messages, the limits."""

from __future__ import annotations

import re
from typing import get_args

from medusa.market.contract.states import NEGOTIATION
from medusa.nodes.agreement.automaton import PROPOSER, VOTER
from medusa.nodes.catalog.deployment_automaton import DEPLOYMENT
from medusa.nodes.consistency.states import CONSISTENCY
from medusa.nodes.fragment.automaton import LIFE, TURN
from medusa.nodes.message_table import MESSAGES
from medusa.nodes.migration.automaton import OWNER, TARGET
from medusa.nodes.recovery.owner_preference import PREFERENCE, SAID
from medusa.nodes.recovery.replication_automaton import REPLICATION
from medusa.nodes.recovery.succession_table import SUCCESSION, Here
from medusa.nodes.repartition.automaton import SPLIT
from medusa.wire import limits, messages
from medusa.wire.link.automaton import RECEIVER, SENDER

WAYS = {
    "Hello": "both",
    "Heartbeat": "both",
    "Refuse": "both",
    "Attach": "receiver to sender",
    "Ack": "receiver to sender",
    "Detach": "receiver to sender",
    "OpenPublisher": "client to node",
    "Attached": "sender to receiver",
    "Data": "sender to receiver",
    "Boundary": "sender to receiver",
    "Progress": "sender to receiver",
    "StreamState": "sender to receiver",
    "TentativeRows": "sender to receiver",
    "TentativeBoundary": "sender to receiver",
    "TentativeTaken": "receiver to sender",
    "Deploy": "client to node",
    "DeployGuarded": "client to node",
    "Install": "node to node",
    "Remove": "client to node, node to node",
    "Forget": "client to node",
    "StatusRequest": "client to node",
    "Declare": "client to node, node to node",
    "Reply": "answer to a command",
    "Entries": "node to node",
    "Digest": "node to node",
    "Lookup": "client to node",
    "Define": "client to node",
    "Expect": "node to node",
    "Unexpect": "node to node",
    "Release": "node to node",
    "Follow": "node to node",
    "Moved": "node to node",
    "Placed": "node to node",
    "Read": "node to node",
    "Load": "node to node",
    "Move": "client to node, node to node",
    "Grant": "client to node, node to node",
    "Receive": "node to node",
    "Seed": "node to node",
    "Ready": "node to node",
    "Piece": "node to node",
    "Whole": "node to node",
    "Fed": "node to node",
    "FedTogether": "node to node",
    "Standing": "node to node",
    "Handover": "node to node",
    "Got": "node to node",
    "GiveUp": "node to node",
    "Settle": "node to node",
    "Settled": "node to node",
    "Configure": "node to node",
    "Prepare": "node to node",
    "Accept": "node to node",
    "Vote": "answer to `Prepare` and `Accept`",
    "DefineRemote": "client to node",
    "RevokeRemote": "client to node",
    "KeepRemote": "node to node",
    "DropRemote": "node to node",
    "Instantiate": "node to node",
    "StoppedRemote": "node to node",
    "Traded": "node to node",
    "Booked": "node to node",
    "Split": "client to node, node to node",
    "Merge": "client to node, node to node",
    "DhtFind": "member to member",
    "DhtFound": "answer to `DhtFind`",
    "DhtStore": "member to member",
    "DhtStored": "answer to `DhtStore`",
    "DhtLeave": "member to member",
}


def automaton(table):
    """A Mermaid state diagram; events between the same two states share an arrow."""
    lines = ["```mermaid", "stateDiagram-v2"]
    first = next(iter(table))
    lines.append(f"    [*] --> {first.value}")
    for state, moves in table.items():
        arrows = {}
        for event, target in moves.items():
            arrows.setdefault(target, []).append(event.value)
        for target, events in arrows.items():
            lines.append(f"    {state.value} --> {target.value} : {', '.join(events)}")
    return "\n".join([*lines, "```"])


def message_table():
    """Command, way, fields, whether a payload comes with it, meaning (the first sentence of the struct)."""
    rows = ["| Message | From, to | Fields | Payload | Says |", "|---|---|---|---|---|"]
    for kind in get_args(messages.Message):
        fields = ", ".join(f"`{name}`" for name in kind.__struct_fields__)
        says = " ".join(kind.__doc__.split("\n\n")[0].split())
        rows.append(f"| {kind.__name__} | {WAYS[kind.__name__]} | {fields} | {kind.PAYLOAD.value} | {says} |")
    return "\n".join(rows)


def limit_table():
    rows = ["| Limit | Value |", "|---|---|"]
    rows += [f"| `{name}` | {value:,} |" for name, value in vars(limits).items() if name.isupper()]
    return "\n".join(rows)


def rights_table():
    """Messages with the same rights share a row."""
    rows = ["| Message | node of this participant | of another one | client |", "|---|---|---|---|"]
    kinds = {}
    for kind in get_args(messages.Message):
        row = MESSAGES[kind].rights
        kinds.setdefault((row.own.words, row.abroad.words, row.client.words), []).append(kind.__name__)
    rows += [f"| {', '.join(names)} | {' | '.join(words)} |" for words, names in kinds.items()]
    return "\n".join(rows)


def succession_table():
    """What a node does, by what it is to the fragment and by what it has of it."""
    rows = [f"| By the configuration this node | {' | '.join(f'it {here.value}' for here in Here)} |"]
    rows.append("|---" * (len(Here) + 1) + "|")
    for role, steps in SUCCESSION.items():
        rows.append(f"| {role.value} | {' | '.join(steps[here].value for here in Here)} |")
    return "\n".join(rows)


def owner_preference():
    """Which node is to have a fragment, the first that is there."""
    rows = ["|  | who has it | if it hears | how its streams are there |", "|---|---|---|---|"]
    for place, (candidate, hears) in enumerate(PREFERENCE, 1):
        rows.append(f"| {place} | {candidate.value} | {hears.value} | `{SAID[hears]}` |")
    return "\n".join(rows)


MOVING = {"owner": lambda: automaton(OWNER), "target": lambda: automaton(TARGET)}
"""Of docs/moving.md."""

SPLITTING = {"split": lambda: automaton(SPLIT)}
"""Of docs/splitting.md."""

AGREEING = {
    "replication": lambda: automaton(REPLICATION),
    "proposer": lambda: automaton(PROPOSER),
    "voter": lambda: automaton(VOTER),
    "succession": succession_table,
}
"""Of docs/standby.md."""

NODES = {
    "deployment": lambda: automaton(DEPLOYMENT),
    "life": lambda: automaton(LIFE),
    "turn": lambda: automaton(TURN),
}
"""Of docs/nodes.md."""

DELAYED = {"consistency": lambda: automaton(CONSISTENCY), "preference": owner_preference}
"""Of docs/dpc.md."""

TRADING = {"negotiation": lambda: automaton(NEGOTIATION)}
"""Of docs/negotiation.md."""

PARTS = {
    "receiver": lambda: automaton(RECEIVER),
    "sender": lambda: automaton(SENDER),
    "messages": message_table,
    "limits": limit_table,
    "rights": rights_table,
}


def drawn(text):
    """The document with every part between ``<!-- drawn: NAME -->`` and ``<!-- end -->`` drawn anew."""

    def draw(found):
        parts = PARTS | MOVING | SPLITTING | AGREEING | NODES | DELAYED | TRADING
        return f"<!-- drawn: {found[1]} -->\n{parts[found[1]]()}\n<!-- end -->"

    return re.sub(r"<!-- drawn: (\w+) -->\n.*?<!-- end -->", draw, text, flags=re.DOTALL)
