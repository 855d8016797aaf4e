"""Whatever a node has, does or is counted on for keeps it from being let go."""

from __future__ import annotations

import pytest

from medusa.nodes.pool.holding import holding
from medusa.wire.status_and_metrics import (
    AgreementStatus,
    BackupsStatus,
    ComingStatus,
    ConfigurationStatus,
    DoubtfulStatus,
    DoubtStatus,
    FragmentStatus,
    GoingStatus,
    HeldBackupStatus,
    MovesStatus,
    NodeStatus,
    QueryStatus,
    ReplicasStatus,
    SecondaryStatus,
    SplitStatus,
    StatelessStatus,
)


def coordinated(configuration: ConfigurationStatus) -> NodeStatus:
    return NodeStatus(node="gate", queries={"q": QueryStatus(configuration=configuration)})


FOLLOWED = ReplicasStatus(owner="gate", secondaries={"spare": SecondaryStatus(state="following")})
WAITS = AgreementStatus(number=1, coordinator="gate", voters=("gate",))
HOLDS = {
    "a fragment": NodeStatus(node="spare", fragments=(FragmentStatus(fragment="q/w", query="q"),)),
    "one that comes": NodeStatus(
        node="spare", moves=MovesStatus(coming={"q/w": ComingStatus(origin="gate")})
    ),
    "one that goes": NodeStatus(node="spare", moves=MovesStatus(going={"q/w": GoingStatus(to="gate")})),
    "one on its way": NodeStatus(node="gate", moves=MovesStatus(going={"q/w": GoingStatus(to="spare")})),
    "a split": NodeStatus(node="spare", splits=(SplitStatus(box="w"),)),
    "a query that it coordinates": NodeStatus(node="spare", queries={"q": QueryStatus()}),
    "a vote that it waits for": NodeStatus(node="spare", undecided={"q": WAITS}),
    "a state that it waits for": NodeStatus(
        node="spare", without_state={"q/w": StatelessStatus(query="q", epoch=1, owner="spare")}
    ),
    "a doubt": NodeStatus(node="spare", in_doubt=DoubtStatus(fragments={"q/w": DoubtfulStatus(query="q")})),
    "a state of others": NodeStatus(
        node="spare", backups=BackupsStatus(held={"q/w": HeldBackupStatus(owner="gate")})
    ),
    "a vote": coordinated(ConfigurationStatus(number=1, coordinator="gate", voters=("gate", "spare"))),
    "a place as standby": coordinated(
        ConfigurationStatus(number=1, coordinator="gate", fragments={"q/w": FOLLOWED})
    ),
    "a removal that waits for it": NodeStatus(
        node="gate", queries={"q": QueryStatus(state="removing", nodes=("gate", "spare"))}
    ),
    "a place as owner": coordinated(
        ConfigurationStatus(number=1, coordinator="gate", fragments={"q/w": ReplicasStatus(owner="spare")})
    ),
}


@pytest.mark.parametrize("what", HOLDS)
def test_what_a_node_has_holds_it_and_nobody_else(what: str) -> None:
    statuses = [HOLDS[what], NodeStatus(node="gate"), NodeStatus(node="other")]
    assert holding("spare", statuses, {})
    assert holding("other", statuses, {}) == ""


def test_what_the_catalog_places_there_holds_a_node_that_does_not_answer() -> None:
    assert holding("spare", [NodeStatus(node="gate")], {"q/w": ["gate", "spare"]}) == "fragment q/w is there"
    assert holding("spare", [NodeStatus(node="spare")], {"q/w": ["gate"]}) == ""
